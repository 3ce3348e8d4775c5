#include "vulpes/io/hdf5.hpp"

#include <fcntl.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "vulpes/core/errors.hpp"
#include "vulpes/io/durable.hpp"

namespace vulpes::io {
namespace {

constexpr std::uint64_t block_bytes = 512;

/// The user block: everything in it is determined by length and checksum, so that it can be compared as a whole.
struct Block {
  std::array<char, 64> magic = {};
  std::uint64_t length = 0;    ///< of the whole file, bytes
  std::uint64_t checksum = 0;  ///< of everything after the block
  std::array<char, block_bytes - 80> rest = {};

  static Block of(std::uint64_t length, std::uint64_t checksum) {
    constexpr char text[] = "Vulpes checkpoint 1 (HDF5 from byte 512)\n";
    Block block;
    std::memcpy(block.magic.data(), text, sizeof text - 1);
    block.length = length;
    block.checksum = checksum;
    return block;
  }
};
static_assert(sizeof(Block) == block_bytes);

/// 64-bit checksum in four lanes of 8-byte words. Every step is a bijection of lane and of word, so that any change
/// within one word changes the result for certain, any other with probability 1 - 2^-64.
class Checksum {
 public:
  /// `bytes`: a multiple of 32 but for the last call.
  void add(const unsigned char* data, std::size_t bytes) {
    std::size_t at = 0;
    for (; at + 32 <= bytes; at += 32) {
      std::uint64_t words[4];
      std::memcpy(words, data + at, 32);
      for (int k = 0; k < 4; ++k) lanes_[k] = mixed(lanes_[k], words[k]);
    }
    if (at < bytes) {
      std::uint64_t words[4] = {};
      std::memcpy(words, data + at, bytes - at);
      for (int k = 0; k < 4; ++k) lanes_[k] = mixed(lanes_[k], words[k]);
    }
    length_ += bytes;
  }
  std::uint64_t value() const {
    std::uint64_t h = length_;
    for (const std::uint64_t lane : lanes_) h = mixed(h, lane);
    return h;
  }

 private:
  static std::uint64_t mixed(std::uint64_t h, std::uint64_t word) {
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
  }
  std::uint64_t lanes_[4] = {1, 2, 3, 4};
  std::uint64_t length_ = 0;
};

/// Closes a file descriptor at the end of its scope.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : value_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

/// Reads up to `bytes` at `offset`; fewer only at the end of the file. Negative: errno says why.
ssize_t read_at(int file, void* data, std::size_t bytes, std::uint64_t offset) {
  std::size_t got = 0;
  while (got < bytes) {
    const ssize_t n = ::pread(file, static_cast<char*>(data) + got, bytes - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return n;
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  return static_cast<ssize_t>(got);
}

/// The block that the file's content asks for.
Block computed_block(int file, const std::string& path) {
  std::vector<unsigned char> buffer(std::size_t{1} << 20);
  Checksum checksum;
  std::uint64_t offset = block_bytes;
  for (;;) {
    const ssize_t got = read_at(file, buffer.data(), buffer.size(), offset);
    if (got < 0) fail_with_errno("cannot read " + path);
    if (got == 0) break;
    checksum.add(buffer.data(), static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return Block::of(offset, checksum.value());
}

/// An HDF5 identifier with its closing function.
class Handle {
 public:
  Handle() = default;
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      id_ = std::exchange(other.id_, -1);
      close_ = other.close_;
    }
    return *this;
  }
  hid_t get() const { return id_; }
  bool valid() const { return id_ >= 0; }
  /// Closes now and says whether that went well.
  bool reset() {
    if (id_ < 0) return true;
    return close_(std::exchange(id_, -1)) >= 0;
  }

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

/// HDF5 prints its error stack unless told not to; the setting is one a thread in thread-safe builds.
void mute() { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

/// HDF5's innermost reason, or the system's if its error stack has one.
std::string stack_reason() {
  std::string reason;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
        auto& text = *static_cast<std::string*>(out);
        const std::string described = error->desc == nullptr ? "" : error->desc;
        const std::string key = "error message = '";
        const std::size_t at = described.find(key);
        if (at != std::string::npos) {
          text = described.substr(at + key.size(), described.find('\'', at + key.size()) - at - key.size());
          return 1;
        }
        if (text.empty()) text = described;
        return 0;
      },
      &reason);
  return reason.empty() ? "HDF5 failed" : reason;
}

hid_t native_type(ElementType type) {
  switch (type) {
    case ElementType::f32:
      return H5T_NATIVE_FLOAT;
    case ElementType::f64:
      return H5T_NATIVE_DOUBLE;
    case ElementType::i8:
      return H5T_NATIVE_INT8;
    case ElementType::i16:
      return H5T_NATIVE_INT16;
    case ElementType::i32:
      return H5T_NATIVE_INT32;
    case ElementType::i64:
      return H5T_NATIVE_INT64;
    case ElementType::u8:
      return H5T_NATIVE_UINT8;
    case ElementType::u16:
      return H5T_NATIVE_UINT16;
    case ElementType::u32:
      return H5T_NATIVE_UINT32;
    case ElementType::u64:
      return H5T_NATIVE_UINT64;
  }
  return H5T_NATIVE_UINT8;
}

std::string type_text(ElementType type) {
  constexpr const char* names[] = {"float32", "float64", "int8",   "int16",  "int32",
                                   "int64",   "uint8",   "uint16", "uint32", "uint64"};
  return names[static_cast<int>(type)];
}

/// Fixed-length UTF-8 text, padded with NUL.
Handle string_type(std::size_t bytes) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), bytes);
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

std::uint64_t product(const Extents& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::uint64_t{1}, std::multiplies<>());
}

}  // namespace

// HDF5 writes into memory and the image goes to the disk in one piece: the library does not survive a write that fails
// (closing such a file corrupts its state), and the checksum needs all bytes anyway.
struct H5Writer::Impl {
  std::string path, temporary;
  Descriptor out;
  void* image = nullptr;
  std::size_t image_bytes = 0;
  Handle file, links, properties;
  bool in_place = false;

  explicit Impl(const std::string& at)
      : path(at), temporary(at + ".tmp"), out(temporary, O_WRONLY | O_CREAT | O_TRUNC) {}
  ~Impl() {
    mute();
    file.reset();
    std::free(image);
    if (out.get() >= 0 && !in_place) ::unlink(temporary.c_str());
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw RunError("cannot write " + what + " to " + path + ": " + stack_reason());
  }

  /// HDF5's image lives in memory of ours, which outlives HDF5's file.
  H5FD_file_image_callbacks_t image_callbacks() {
    H5FD_file_image_callbacks_t calls = {};
    calls.image_realloc = [](void* old, size_t bytes, H5FD_file_image_op_t, void* self) -> void* {
      void* grown = std::realloc(old, bytes);
      if (grown != nullptr) {
        static_cast<Impl*>(self)->image = grown;
        static_cast<Impl*>(self)->image_bytes = bytes;
      }
      return grown;
    };
    calls.image_free = [](void*, H5FD_file_image_op_t, void*) -> herr_t { return 0; };
    calls.udata_copy = [](void* self) { return self; };
    calls.udata_free = [](void*) -> herr_t { return 0; };
    calls.udata = this;
    return calls;
  }
};

H5Writer::H5Writer(const std::string& path) : impl_(std::make_unique<Impl>(path)) {
  if (impl_->out.get() < 0) fail_with_errno("cannot write " + path);
  mute();
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_core(access.get(), std::size_t{1} << 20, false);
  H5FD_file_image_callbacks_t calls = impl_->image_callbacks();
  H5Pset_file_image_callbacks(access.get(), &calls);
  const Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_userblock(creation.get(), block_bytes);
  impl_->links = Handle(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(impl_->links.get(), 1);
  // Times of creation would make two equal checkpoints differ.
  impl_->properties = Handle(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(impl_->properties.get(), false);
  H5Pset_fill_time(impl_->properties.get(), H5D_FILL_TIME_NEVER);
  impl_->file = Handle(H5Fcreate(impl_->temporary.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose);
  if (!impl_->file.valid()) impl_->fail("the header");
}

H5Writer::~H5Writer() = default;

void H5Writer::write_raw(const std::string& name, ElementType type, const void* data, const Extents& extents) {
  mute();
  const std::vector<hsize_t> sizes(extents.begin(), extents.end());
  const Handle space(
      sizes.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
      H5Sclose);
  Handle set(H5Dcreate2(impl_->file.get(), name.c_str(), native_type(type), space.get(), impl_->links.get(),
                        impl_->properties.get(), H5P_DEFAULT),
             H5Dclose);
  const bool written = set.valid() && (product(extents) == 0 || H5Dwrite(set.get(), native_type(type), H5S_ALL, H5S_ALL,
                                                                         H5P_DEFAULT, data) >= 0);
  if (!written || !set.reset()) impl_->fail("'" + name + "'");
}

void H5Writer::write_string(const std::string& name, const std::string& text) {
  mute();
  const Handle type = string_type(std::max<std::size_t>(text.size(), 1));
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  Handle set(H5Dcreate2(impl_->file.get(), name.c_str(), type.get(), space.get(), impl_->links.get(),
                        impl_->properties.get(), H5P_DEFAULT),
             H5Dclose);
  const bool written = set.valid() && H5Dwrite(set.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.c_str()) >= 0;
  if (!written || !set.reset()) impl_->fail("'" + name + "'");
}

void H5Writer::finish() {
  mute();
  if (H5Fflush(impl_->file.get(), H5F_SCOPE_LOCAL) < 0) impl_->fail("the last part");
  const ssize_t content = H5Fget_file_image(impl_->file.get(), nullptr, 0);
  if (content < 0 || !impl_->file.reset()) impl_->fail("the last part");
  const std::size_t length = std::min(static_cast<std::size_t>(content) + block_bytes, impl_->image_bytes);

  Checksum checksum;
  auto* bytes = static_cast<unsigned char*>(impl_->image);
  checksum.add(bytes + block_bytes, length - block_bytes);
  const Block block = Block::of(length, checksum.value());
  std::memcpy(bytes, &block, sizeof block);
  write_all(impl_->out.get(), bytes, length, impl_->path);
  if (::fsync(impl_->out.get()) != 0) fail_with_errno("cannot write " + impl_->path);
  put_in_place(impl_->temporary, impl_->path);
  impl_->in_place = true;
}

struct H5Reader::Impl {
  std::string path;
  Trust trust = Trust::checkpoint;
  Handle file;

  void require(bool holds, const std::string& message) const {
    if (holds) return;
    if (trust == Trust::any) throw InputError(message);
    throw RunError(message);
  }

  Handle open_set(const std::string& name) const {
    mute();
    Handle set(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
    require(set.valid(), path + ": no '" + name + "' in it");
    return set;
  }
  Extents extents_of(hid_t set) const {
    const Handle space(H5Dget_space(set), H5Sclose);
    std::vector<hsize_t> sizes(static_cast<std::size_t>(std::max(0, H5Sget_simple_extent_ndims(space.get()))));
    if (!sizes.empty()) H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr);
    return Extents(sizes.begin(), sizes.end());
  }
  ElementType type_of(hid_t set, const std::string& name) const {
    const Handle stored(H5Dget_type(set), H5Tclose);
    for (int k = 0; k <= static_cast<int>(ElementType::u64); ++k) {
      if (H5Tequal(stored.get(), native_type(static_cast<ElementType>(k))) > 0) return static_cast<ElementType>(k);
    }
    require(false, path + ": '" + name + "' has a type that no checkpoint has");
    return ElementType::u8;
  }
};

H5Reader::H5Reader(const std::string& path, Trust trust) : impl_(std::make_unique<Impl>()) {
  mute();
  impl_->path = path;
  impl_->trust = trust;
  const std::string damaged = path + ": truncated or not a checkpoint";
  if (trust == Trust::checkpoint) {
    const Descriptor file(path, O_RDONLY);
    if (file.get() < 0) fail_with_errno("cannot read " + path);
    Block stored;
    const ssize_t got = read_at(file.get(), &stored, sizeof stored, 0);
    if (got < 0) fail_with_errno("cannot read " + path);
    struct stat status = {};
    ::fstat(file.get(), &status);
    const auto length = static_cast<std::uint64_t>(status.st_size);
    // Magic and length first: no checksum over something large that was never a checkpoint.
    throw_if<RunError>(
        got != static_cast<ssize_t>(sizeof stored) || stored.length != length || stored.magic != Block::of(0, 0).magic,
        damaged);
    const Block computed = computed_block(file.get(), path);
    throw_if<RunError>(std::memcmp(&stored, &computed, sizeof stored) != 0, damaged);
  }
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
#if H5_VERSION_GE(1, 10, 7)
  // Finished checkpoints never change, and many cluster file systems have no locks.
  H5Pset_file_locking(access.get(), false, true);
#endif
  impl_->file = Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  impl_->require(impl_->file.valid(), "cannot read " + path + ": " + stack_reason());
}

H5Reader::~H5Reader() = default;
H5Reader::H5Reader(H5Reader&&) noexcept = default;
H5Reader& H5Reader::operator=(H5Reader&&) noexcept = default;

const std::string& H5Reader::path() const { return impl_->path; }

bool H5Reader::has(const std::string& name) const {
  mute();
  // HDF5 wants each group of the path to exist before it looks for the next.
  for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    if (slash > 0 && H5Lexists(impl_->file.get(), name.substr(0, slash).c_str(), H5P_DEFAULT) <= 0) return false;
  }
  return !name.empty() && H5Lexists(impl_->file.get(), name.c_str(), H5P_DEFAULT) > 0;
}

std::vector<std::string> H5Reader::list(const std::string& group) const {
  mute();
  std::vector<std::string> names;
  if (!group.empty() && !has(group)) return names;
  const Handle opened(H5Gopen2(impl_->file.get(), group.empty() ? "/" : group.c_str(), H5P_DEFAULT), H5Gclose);
  if (!opened.valid()) return names;
  H5Literate(
      opened.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr,
      [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
        static_cast<std::vector<std::string>*>(out)->emplace_back(name);
        return 0;
      },
      &names);
  return names;
}

Extents H5Reader::extents(const std::string& name) const { return impl_->extents_of(impl_->open_set(name).get()); }

std::uint64_t H5Reader::size(const std::string& name) const { return product(extents(name)); }

ElementType H5Reader::type(const std::string& name) const { return impl_->type_of(impl_->open_set(name).get(), name); }

void H5Reader::read_raw(const std::string& name, ElementType type, void* data, std::uint64_t count) const {
  const Handle set = impl_->open_set(name);
  const std::uint64_t stored_count = product(impl_->extents_of(set.get()));
  impl_->require(stored_count == count, impl_->path + ": '" + name + "' has " + std::to_string(stored_count) +
                                            " elements, not " + std::to_string(count));
  const ElementType stored = impl_->type_of(set.get(), name);
  impl_->require(stored == type,
                 impl_->path + ": '" + name + "' holds " + type_text(stored) + ", not " + type_text(type));
  if (count == 0) return;
  impl_->require(H5Dread(set.get(), native_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0,
                 impl_->path + ": cannot read '" + name + "': " + stack_reason());
}

std::string H5Reader::read_string(const std::string& name) const {
  const Handle set = impl_->open_set(name);
  const Handle stored(H5Dget_type(set.get()), H5Tclose);
  impl_->require(H5Tget_class(stored.get()) == H5T_STRING && product(impl_->extents_of(set.get())) == 1,
                 impl_->path + ": '" + name + "' holds no single text");
  const auto read = [&](void* data) {
    impl_->require(H5Dread(set.get(), stored.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0,
                   impl_->path + ": cannot read '" + name + "': " + stack_reason());
  };
  if (H5Tis_variable_str(stored.get()) > 0) {
    char* allocated = nullptr;  // by HDF5; null for an empty text
    read(&allocated);
    const std::string text = allocated == nullptr ? "" : allocated;
    H5free_memory(allocated);
    return text;
  }
  std::string text(H5Tget_size(stored.get()), '\0');
  read(text.data());
  text.erase(text.find_last_not_of('\0') + 1);
  return text;
}

}  // namespace vulpes::io
