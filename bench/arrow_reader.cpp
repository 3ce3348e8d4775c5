#include "arrow_reader.hpp"

#include <arrow/api.h>
#include <arrow/csv/api.h>
#include <arrow/io/api.h>

#include <stdexcept>

namespace vulpes::bench {

std::int64_t read_with_arrow(const std::string& path) {
  const auto value = [](auto result) {
    if (!result.ok()) throw std::runtime_error(result.status().ToString());
    return result.MoveValueUnsafe();
  };
  const auto input = value(arrow::io::ReadableFile::Open(path));
  auto read = arrow::csv::ReadOptions::Defaults();
  read.block_size = 4 << 20;
  const auto reader = value(arrow::csv::TableReader::Make(arrow::io::default_io_context(), input, read,
                                                          arrow::csv::ParseOptions::Defaults(),
                                                          arrow::csv::ConvertOptions::Defaults()));
  return value(reader->Read())->num_rows();
}

}  // namespace vulpes::bench
