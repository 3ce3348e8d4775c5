// Checkpoint files: HDF5 with a checksum of the whole file, written so that a reader sees all of it or nothing.
//
// The first 512 bytes are HDF5's user block, which other HDF5 programs skip. It holds a magic, the file's length and
// a 64-bit checksum of everything after it, and so marks the file as complete. A reader checks it before HDF5 parses
// a single byte, so that no damage can reach the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace vulpes::io {

using Extents = std::vector<std::uint64_t>;

/// Element types of a dataset.
enum class ElementType { f32, f64, i8, i16, i32, i64, u8, u16, u32, u64 };

template <class T>
constexpr ElementType element_type_of() {
  static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8);
  if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? ElementType::f32 : ElementType::f64;
  } else {
    constexpr int log_size = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return static_cast<ElementType>(static_cast<int>(std::is_signed_v<T> ? ElementType::i8 : ElementType::u8) +
                                    log_size);
  }
}

/// Gathers the file in memory (as much as its size); `finish` writes `path` + ".tmp" and puts it in the place of
/// `path`. Destroyed before, it removes the temporary.
/// Names are paths ("network/trunk"): groups are made as needed. The same calls give the same bytes.
/// Every function throws RunError with the system's reason (disk full, read-only folder).
/// Not to be used from two threads at once.
class H5Writer {
 public:
  explicit H5Writer(const std::string& path);
  ~H5Writer();
  H5Writer(const H5Writer&) = delete;
  H5Writer& operator=(const H5Writer&) = delete;

  /// `data`: row-major on the host, as many elements as the product of `extents` (may be 0).
  template <class T>
  void write(const std::string& name, const T* data, const Extents& extents) {
    write_raw(name, element_type_of<T>(), data, extents);
  }
  template <class T>
  void write(const std::string& name, const std::vector<T>& values) {
    write_raw(name, element_type_of<T>(), values.data(), Extents{values.size()});
  }
  template <class T>
  void write_scalar(const std::string& name, T value) {
    write_raw(name, element_type_of<T>(), &value, Extents{});
  }
  void write_string(const std::string& name, const std::string& text);

  /// Checksum, write, fsync, rename to `path`, fsync of the folder.
  void finish();

 private:
  void write_raw(const std::string& name, ElementType type, const void* data, const Extents& extents);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Reads a file of H5Writer. The constructor verifies the checksum and throws RunError "<path>: truncated or not a
/// checkpoint" (or the system's reason when the file cannot be read); the rest throws RunError that names the dataset.
class H5Reader {
 public:
  /// `any`: also files of other programs, without checksum; the caller trusts them. What is wrong with such a file its
  /// maker can mend: all errors are InputError.
  enum class Trust { checkpoint, any };
  explicit H5Reader(const std::string& path, Trust trust = Trust::checkpoint);
  ~H5Reader();
  H5Reader(H5Reader&&) noexcept;
  H5Reader& operator=(H5Reader&&) noexcept;

  const std::string& path() const;
  bool has(const std::string& name) const;
  /// Names directly below a group ("": the root), sorted; empty when there is no such group.
  std::vector<std::string> list(const std::string& group = "") const;
  Extents extents(const std::string& name) const;
  std::uint64_t size(const std::string& name) const;
  ElementType type(const std::string& name) const;

  /// The stored type must be T: nothing is converted.
  template <class T>
  std::vector<T> read(const std::string& name) const {
    std::vector<T> values(size(name));
    read_raw(name, element_type_of<T>(), values.data(), values.size());
    return values;
  }
  /// The stored number of elements must be `count`.
  template <class T>
  void read_into(const std::string& name, T* data, std::uint64_t count) const {
    read_raw(name, element_type_of<T>(), data, count);
  }
  template <class T>
  T read_scalar(const std::string& name) const {
    T value{};
    read_raw(name, element_type_of<T>(), &value, 1);
    return value;
  }
  /// One text, of fixed or (as h5py writes it) variable length.
  std::string read_string(const std::string& name) const;

 private:
  void read_raw(const std::string& name, ElementType type, void* data, std::uint64_t count) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vulpes::io
