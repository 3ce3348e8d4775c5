// A folder of its own for each test, removed at its end; and the message of an expected error.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace vulpes::io {

class TemporaryFolder : public testing::Test {
 protected:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "vulpes_io_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  static std::string read(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  const std::string& folder() const { return folder_; }
  /// The message without the temporary folder's name.
  std::string shortened(std::string message) const {
    for (std::size_t at; (at = message.find(folder_ + "/")) != std::string::npos;)
      message.erase(at, folder_.size() + 1);
    return message;
  }

  /// The message of the Error that `call` throws.
  template <class Error, class Call>
  std::string error_of(const Call& call) const {
    try {
      call();
    } catch (const Error& error) {
      return shortened(error.what());
    } catch (const std::exception& error) {
      return std::string("another type of error: ") + error.what();
    }
    return "no error";
  }

 private:
  std::string folder_;
};

}  // namespace vulpes::io
