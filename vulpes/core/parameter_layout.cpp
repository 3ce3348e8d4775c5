#include "vulpes/core/parameter_layout.hpp"

#include <algorithm>
#include <stdexcept>

namespace vulpes {

int ParameterLayout::add(const std::string& name, int rows, int columns, bool is_weight) {
  tensors_.push_back({name, size_, rows, columns, is_weight});
  const std::size_t end = size_ + tensors_.back().size();
  size_ = (end + alignment - 1) / alignment * alignment;
  return static_cast<int>(tensors_.size()) - 1;
}

const TensorSlice& ParameterLayout::find(const std::string& name) const {
  const auto it = std::find_if(tensors_.begin(), tensors_.end(), [&](const TensorSlice& t) { return t.name == name; });
  if (it == tensors_.end()) throw std::out_of_range("no tensor '" + name + "' in the parameter layout");
  return *it;
}

std::size_t ParameterLayout::parameter_count() const {
  std::size_t count = 0;
  for (const TensorSlice& t : tensors_) count += t.size();
  return count;
}

std::vector<Chunk> make_chunks(const ParameterLayout& layout, std::size_t largest) {
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
    const TensorSlice& t = layout.tensors()[i];
    for (std::size_t begin = 0; begin < t.size(); begin += largest) {
      const std::size_t end = std::min(t.size(), begin + largest);
      chunks.push_back({static_cast<std::uint32_t>(t.offset + begin), static_cast<std::uint32_t>(t.offset + end),
                        static_cast<std::uint32_t>(i)});
    }
  }
  return chunks;
}

}  // namespace vulpes
