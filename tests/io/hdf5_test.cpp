#include "vulpes/io/hdf5.hpp"

#include <gtest/gtest.h>
#include <hdf5.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>
#include <limits>
#include <numeric>

#include "temporary_folder.hpp"
#include "vulpes/core/errors.hpp"

namespace vulpes::io {
namespace {

class Checkpoint : public TemporaryFolder {
 protected:
  void write_small(const std::string& file) {
    H5Writer writer(path(file));
    writer.write("network/trunk", std::vector<float>{1.5f, -2, 3});
    writer.write_scalar("iteration", std::int64_t{400});
    writer.write_string("config", "[agent]\ngamma = 0.95\n");
    writer.finish();
  }
  /// Everything that write_small wrote, as text.
  static std::string content(const H5Reader& reader) {
    std::string text = reader.read_string("config") + std::to_string(reader.read_scalar<std::int64_t>("iteration"));
    for (const float v : reader.read<float>("network/trunk")) text.append(" ").append(std::to_string(v));
    return text;
  }
};

template <class T>
void round_trip(const std::string& file) {
  std::vector<T> values = {std::numeric_limits<T>::lowest(), T{0}, T{1}, std::numeric_limits<T>::max()};
  {
    H5Writer writer(file);
    writer.write("x", values);
    writer.write("matrix", values.data(), {2, 2});
    writer.write_scalar("one", values.back());
    writer.finish();
  }
  const H5Reader reader(file);
  EXPECT_EQ(reader.read<T>("x"), values);
  EXPECT_EQ(reader.type("x"), element_type_of<T>());
  EXPECT_EQ(reader.extents("matrix"), (Extents{2, 2}));
  EXPECT_EQ(reader.read<T>("matrix"), values);
  EXPECT_EQ(reader.extents("one"), Extents{});
  EXPECT_EQ(reader.read_scalar<T>("one"), values.back());
}

TEST_F(Checkpoint, EveryElementTypeKeepsItsBits) {
  round_trip<float>(path("c.h5"));
  round_trip<double>(path("c.h5"));
  round_trip<std::int8_t>(path("c.h5"));
  round_trip<std::int16_t>(path("c.h5"));
  round_trip<std::int32_t>(path("c.h5"));
  round_trip<std::int64_t>(path("c.h5"));
  round_trip<std::uint8_t>(path("c.h5"));
  round_trip<std::uint16_t>(path("c.h5"));
  round_trip<std::uint32_t>(path("c.h5"));
  round_trip<std::uint64_t>(path("c.h5"));
}

TEST_F(Checkpoint, NanPayloadsAndEmptyArraysSurvive) {
  const std::uint32_t bits = 0x7fc12345u;
  float nan;
  std::memcpy(&nan, &bits, 4);
  {
    H5Writer writer(path("c.h5"));
    writer.write("nan", &nan, {1});
    writer.write("empty", std::vector<double>{});
    writer.write("flat", static_cast<const float*>(nullptr), {0, 7});
    writer.write_string("none", "");
    writer.finish();
  }
  const H5Reader reader(path("c.h5"));
  float back = 0;
  reader.read_into("nan", &back, 1);
  EXPECT_EQ(std::memcmp(&back, &bits, 4), 0);
  EXPECT_TRUE(reader.read<double>("empty").empty());
  EXPECT_EQ(reader.extents("flat"), (Extents{0, 7}));
  EXPECT_EQ(reader.read_string("none"), "");
}

TEST_F(Checkpoint, NamesAndGroups) {
  write_small("c.h5");
  const H5Reader reader(path("c.h5"));
  EXPECT_EQ(reader.list(), (std::vector<std::string>{"config", "iteration", "network"}));
  EXPECT_EQ(reader.list("network"), (std::vector<std::string>{"trunk"}));
  EXPECT_TRUE(reader.list("nothing").empty());
  EXPECT_TRUE(reader.has("network/trunk"));
  EXPECT_FALSE(reader.has("network/head"));
  EXPECT_FALSE(reader.has("nothing/at/all"));
  EXPECT_EQ(reader.size("network/trunk"), 3u);
}

TEST_F(Checkpoint, WrongReadsAreErrorsThatNameTheDataset) {
  write_small("c.h5");
  const H5Reader reader(path("c.h5"));
  std::vector<float> two(2);
  EXPECT_EQ(error_of<RunError>([&] { reader.read<float>("network/head"); }), "c.h5: no 'network/head' in it");
  EXPECT_EQ(error_of<RunError>([&] { reader.read<double>("network/trunk"); }),
            "c.h5: 'network/trunk' holds float32, not float64");
  EXPECT_EQ(error_of<RunError>([&] { reader.read_into("network/trunk", two.data(), 2); }),
            "c.h5: 'network/trunk' has 3 elements, not 2");
  EXPECT_EQ(error_of<RunError>([&] { reader.read_string("iteration"); }), "c.h5: 'iteration' holds no single text");
  H5Writer writer(path("d.h5"));
  writer.write_scalar("x", 1);
  EXPECT_EQ(error_of<RunError>([&] { writer.write_scalar("x", 2); }).substr(0, 26), "cannot write 'x' to d.h5: ");
}

/// A file as other programs write one: `texts` as a dataset "text" of variable-length strings, one of them a scalar.
void write_foreign(const std::string& path, const std::vector<const char*>& texts) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, H5T_VARIABLE);
  H5Tset_cset(type, H5T_CSET_UTF8);
  const hsize_t count = texts.size();
  const hid_t space = count == 1 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr);
  const hid_t set = H5Dcreate2(file, "text", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts.data());
  H5Dclose(set);
  H5Sclose(space);
  H5Tclose(type);
  H5Fclose(file);
}

TEST_F(Checkpoint, TextsOfVariableLengthAreReadAsH5pyWritesThem) {
  for (const std::string text : {"", "x", "[agent]\ngamma = 0.95 # \xc3\xa4\n"}) {
    write_foreign(path("v.h5"), {text.c_str()});
    EXPECT_EQ(H5Reader(path("v.h5"), H5Reader::Trust::any).read_string("text"), text);
  }
  const std::string longest(100000, 'y');
  write_foreign(path("v.h5"), {longest.c_str()});
  EXPECT_EQ(H5Reader(path("v.h5"), H5Reader::Trust::any).read_string("text"), longest);
}

TEST_F(Checkpoint, WhatIsWrongWithAFileOfTheUsersOwnIsTheUsersToMend) {
  write_foreign(path("v.h5"), {"a", "b"});
  const H5Reader reader(path("v.h5"), H5Reader::Trust::any);
  EXPECT_EQ(error_of<InputError>([&] { reader.read_string("text"); }), "v.h5: 'text' holds no single text");
  EXPECT_EQ(error_of<InputError>([&] { reader.read<float>("x"); }), "v.h5: no 'x' in it");
  EXPECT_EQ(error_of<InputError>([&] { reader.read<float>("text"); }),
            "v.h5: 'text' has a type that no checkpoint has");
  write("text.h5", "no HDF5");
  EXPECT_EQ(error_of<InputError>([&] { H5Reader(path("text.h5"), H5Reader::Trust::any); }).substr(0, 20),
            "cannot read text.h5:");
}

TEST_F(Checkpoint, EqualContentGivesEqualFiles) {
  write_small("a.h5");
  write_small("b.h5");
  EXPECT_EQ(read(path("a.h5")), read(path("b.h5")));
}

TEST_F(Checkpoint, NothingAppearsBeforeFinishAndNothingStaysWithoutIt) {
  write_small("c.h5");
  const std::string before = read(path("c.h5"));
  {
    H5Writer writer(path("c.h5"));
    writer.write("x", std::vector<float>(1000, 1.0f));
    EXPECT_TRUE(std::filesystem::exists(path("c.h5.tmp")));
    EXPECT_EQ(read(path("c.h5")), before);
  }
  EXPECT_FALSE(std::filesystem::exists(path("c.h5.tmp")));
  EXPECT_EQ(read(path("c.h5")), before);
}

TEST_F(Checkpoint, TruncatedAtAnyByteIsRefused) {
  write_small("c.h5");
  const std::string whole = read(path("c.h5"));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write("cut.h5", whole.substr(0, length));
    ASSERT_EQ(error_of<RunError>([&] { H5Reader reader(path("cut.h5")); }), "cut.h5: truncated or not a checkpoint")
        << length;
  }
  write("cut.h5", whole + "x");
  EXPECT_EQ(error_of<RunError>([&] { H5Reader reader(path("cut.h5")); }), "cut.h5: truncated or not a checkpoint");
}

TEST_F(Checkpoint, AnyChangedByteIsRefused) {
  write_small("c.h5");
  std::string bytes = read(path("c.h5"));
  ASSERT_EQ(content(H5Reader(path("c.h5"))), "[agent]\ngamma = 0.95\n400 1.500000 -2.000000 3.000000");
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    const char old = bytes[at];
    bytes[at] = static_cast<char>(old ^ (1 << (at % 8)));
    write("bad.h5", bytes);
    ASSERT_EQ(error_of<RunError>([&] { H5Reader reader(path("bad.h5")); }), "bad.h5: truncated or not a checkpoint")
        << at;
    bytes[at] = old;
  }
}

TEST_F(Checkpoint, SwappedWordsAndZeroedBlocksAreRefused) {
  {
    H5Writer writer(path("c.h5"));
    std::vector<std::uint64_t> numbers(4096);
    std::iota(numbers.begin(), numbers.end(), 1);
    writer.write("numbers", numbers);
    writer.finish();
  }
  const std::string whole = read(path("c.h5"));
  // Words 32 bytes apart share a lane of the checksum.
  for (const std::size_t distance : {8u, 32u, 4096u}) {
    std::string bytes = whole;
    const std::size_t middle = whole.size() / 2 / 8 * 8;
    std::swap_ranges(bytes.begin() + static_cast<std::ptrdiff_t>(middle),
                     bytes.begin() + static_cast<std::ptrdiff_t>(middle) + 8,
                     bytes.begin() + static_cast<std::ptrdiff_t>(middle + distance));
    ASSERT_NE(bytes, whole);
    write("bad.h5", bytes);
    EXPECT_THROW(H5Reader(path("bad.h5")), RunError) << distance;
  }
  std::string bytes = whole;
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(whole.size()) - 4096, 4096, '\0');
  write("bad.h5", bytes);
  EXPECT_THROW(H5Reader(path("bad.h5")), RunError);
}

TEST_F(Checkpoint, OtherFilesAreNoCheckpoints) {
  write("text.h5", std::string(2000, 'x'));
  EXPECT_EQ(error_of<RunError>([&] { H5Reader reader(path("text.h5")); }), "text.h5: truncated or not a checkpoint");
  EXPECT_EQ(error_of<RunError>([&] { H5Reader reader(path("none.h5")); }),
            "cannot read none.h5: No such file or directory");
}

TEST_F(Checkpoint, AFullDiskIsAnErrorAndLeavesTheOldFile) {
  write_small("c.h5");
  const std::string before = read(path("c.h5"));
  // A limit on file sizes fails a write in the same place as a full disk does.
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit old = {};
  ::getrlimit(RLIMIT_FSIZE, &old);
  for (const rlim_t limit : {0u, 100u, 700u, 3000u, 100000u}) {
    const rlimit small = {limit, old.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    const std::string message = error_of<RunError>([&] {
      H5Writer writer(path("c.h5"));
      writer.write("a/b", std::vector<double>(1 << 16));
      for (int k = 0; k < 50; ++k) writer.write_scalar("many/" + std::to_string(k), k);
      writer.finish();
    });
    ::setrlimit(RLIMIT_FSIZE, &old);
    EXPECT_EQ(message, "cannot write c.h5: File too large") << limit;
    EXPECT_FALSE(std::filesystem::exists(path("c.h5.tmp")));
    EXPECT_EQ(read(path("c.h5")), before);
  }
}

TEST_F(Checkpoint, AFolderThatCannotBeWrittenIsAnError) {
  EXPECT_EQ(error_of<RunError>([&] { H5Writer writer(path("none/c.h5")); }),
            "cannot write none/c.h5: No such file or directory");
  write("file", "");
  EXPECT_EQ(error_of<RunError>([&] { H5Writer writer(path("file/c.h5")); }), "cannot write file/c.h5: Not a directory");
  if (::geteuid() == 0) return;  // root may write everywhere
  ::mkdir(path("locked").c_str(), 0500);
  EXPECT_EQ(error_of<RunError>([&] { H5Writer writer(path("locked/c.h5")); }),
            "cannot write locked/c.h5: Permission denied");
}

TEST_F(Checkpoint, NoMessageOfHdf5ReachesTheTerminal) {
  write_small("c.h5");
  testing::internal::CaptureStderr();
  const H5Reader reader(path("c.h5"));
  EXPECT_THROW(reader.read<float>("nothing"), RunError);
  EXPECT_FALSE(reader.has("a/b/c"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace vulpes::io
