// Writes that survive a crash: shared by the writers of this folder.
#pragma once

#include <cstddef>
#include <string>

namespace vulpes::io {

/// Throws RunError "<what>: <text of errno>".
[[noreturn]] void fail_with_errno(const std::string& what);

/// Writes all bytes to a file descriptor. Throws RunError that names `path`.
void write_all(int file, const void* data, std::size_t bytes, const std::string& path);

/// Renames a finished (fsynced) temporary to `path` and fsyncs the folder.
void put_in_place(const std::string& temporary, const std::string& path);

/// Makes the entry of `path` in its folder durable.
void sync_folder_of(const std::string& path);

}  // namespace vulpes::io
