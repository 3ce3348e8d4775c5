// Batches full of conflicting updates and what a tree must hold after each.
#pragma once

#include <memory>

#include "replay_fixture.hpp"

namespace vulpes::kernels::test {

/// Batches that name rows several times with different values; some rows are left out, some values are 0.
class Conflicts {
 public:
  Conflicts(int count, std::uint32_t capacity) : rows(count), units(count), leaves(capacity), capacity_(capacity) {}

  /// The next batch into `rows` and `units`, what it leaves behind into `leaves`.
  void next() {
    ++round_;
    const auto count = static_cast<std::uint32_t>(rows.size());
    // A quarter of the batch's size in rows: about four positions name each. A new part of the tree each round.
    const std::uint32_t span = count / 4 < capacity_ ? count / 4 : capacity_;
    const std::uint32_t first = mix(round_) % (capacity_ - span + 1);
    for (std::uint32_t k = 0; k < count; ++k) {
      const std::uint32_t word = mix(round_ * 0x9e3779b9u + k);
      rows[k] = word % 97 == 0 ? no_row : first + static_cast<std::uint32_t>(std::uint64_t(word) * span >> 32);
      units[k] = word % 31 == 0 ? 0u : mix(word);
      if (rows[k] != no_row) leaves[rows[k]] = units[k];
    }
  }

  std::vector<std::uint32_t> rows, units, leaves;

 private:
  static std::uint32_t mix(std::uint32_t x) {  // MurmurHash3's finaliser
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
  }
  std::uint32_t capacity_, round_ = 0;
};

/// Applies batch after batch to a tree through `update(space, tree, rows, units)` and looks at every node after each.
/// Returns the first fault, or an empty string after `rounds` rounds; `last` receives the final tree.
template <class Space, class Update>
std::string first_fault(int count, std::uint32_t capacity, int rounds, const Update& update_tree,
                        std::unique_ptr<TreeCopy>* last = nullptr) {
  const Space space;
  const SegmentTree<Space> tree(space, capacity);
  Conflicts batch(count, capacity);
  const Vector<std::uint32_t, Space> rows = to_device(space, batch.rows), units = to_device(space, batch.units);
  for (int r = 0; r < rounds; ++r) {
    batch.next();
    write(space, rows, 0, batch.rows);
    write(space, units, 0, batch.units);
    update_tree(space, tree, rows, units);
    auto copy = std::make_unique<TreeCopy>(space, tree);
    std::string fault = copy->fault();
    for (std::uint32_t i = 0; i < capacity && fault.empty(); ++i) {
      if (copy->leaves[i] != batch.leaves[i]) {
        fault = "leaf " + std::to_string(i) + " is " + std::to_string(copy->leaves[i]) +
                ", the last value written is " + std::to_string(batch.leaves[i]);
      }
    }
    if (!fault.empty()) return "round " + std::to_string(r) + ": " + fault;
    if (last && r + 1 == rounds) *last = std::move(copy);
  }
  return {};
}

}  // namespace vulpes::kernels::test
