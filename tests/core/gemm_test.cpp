// Matrix products of whichever back end this program is linked with, against a plain loop in double.
#include "vulpes/core/gemm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "vulpes/core/random.hpp"

namespace vulpes {
namespace {

struct Shape {
  int m, n, k;
  Op op_a, op_b;
};

class Numbers {
 public:
  double next() { return normal_pair(random_words({11, 1}, Purpose::test, 2, index_++)).first; }

 private:
  std::uint32_t index_ = 0;
};

template <class Space, class Real>
void check(const Shape& s, bool accumulate, bool bias, bool relu, bool mask, bool sums, double tolerance,
           double scale = 1) {
  Numbers numbers;
  const int pad = 3;
  const int ar = s.op_a == Op::none ? s.m : s.k, ac = s.op_a == Op::none ? s.k : s.m;
  const int br = s.op_b == Op::none ? s.k : s.n, bc = s.op_b == Op::none ? s.n : s.k;
  std::vector<Real> a(static_cast<std::size_t>(ar) * (ac + pad)), b(static_cast<std::size_t>(br) * (bc + pad)),
      c(static_cast<std::size_t>(s.m) * (s.n + pad)), masks(static_cast<std::size_t>(s.m) * s.n), biases(s.n),
      row_sums(s.m, Real(-1));
  for (auto* v : {&a, &b, &c, &masks, &biases}) {
    for (Real& x : *v) x = static_cast<Real>(numbers.next());
  }
  const std::vector<Real> before = c;
  Product<Real> p;
  p.op_a = s.op_a;
  p.op_b = s.op_b;
  p.a = {a.data(), ar, ac, ac + pad};
  p.b = {b.data(), br, bc, bc + pad};
  p.c = {c.data(), s.m, s.n, s.n + pad};
  p.accumulate = accumulate;
  p.scale = scale;
  if (bias) p.column_bias = biases.data();
  p.relu = relu;
  if (mask) p.mask = {masks.data(), s.m, s.n, s.n};
  if (sums) p.row_sums = row_sums.data();
  const Space space;
  multiply(space, "test", p);
  space.fence("test");

  double worst = 0, largest = 1e-30, worst_sum = 0;
  for (int i = 0; i < s.m; ++i) {
    double row = 0;
    for (int l = 0; l < s.k; ++l) row += s.op_a == Op::none ? a[i * (ac + pad) + l] : a[l * (ac + pad) + i];
    if (sums) worst_sum = std::max(worst_sum, std::abs(row - row_sums[i]) / std::sqrt(s.k));
    for (int j = 0; j < s.n; ++j) {
      double y = 0;
      for (int l = 0; l < s.k; ++l) {
        y += static_cast<double>(s.op_a == Op::none ? a[i * (ac + pad) + l] : a[l * (ac + pad) + i]) *
             (s.op_b == Op::none ? b[l * (bc + pad) + j] : b[j * (bc + pad) + l]);
      }
      y = scale * y + (accumulate ? before[i * (s.n + pad) + j] : 0.0);
      if (bias) y += biases[j];
      if (relu && y < 0) y = 0;
      if (mask && !(masks[i * s.n + j] > 0)) y = 0;
      largest = std::max(largest, std::abs(y));
      worst = std::max(worst, std::abs(y - c[i * (s.n + pad) + j]));
    }
    for (int j = s.n; j < s.n + pad; ++j) {
      ASSERT_EQ(c[i * (s.n + pad) + j], before[i * (s.n + pad) + j]) << "wrote beyond the block";
    }
  }
  EXPECT_LT(worst, tolerance * largest) << s.m << "x" << s.n << "x" << s.k;
  EXPECT_LT(worst_sum, tolerance * 10);
}

template <class Space>
void check_all() {
  const Op none = Op::none, transpose = Op::transpose;
  for (const Shape& s :
       {Shape{1, 1, 1, none, none}, Shape{17, 5, 3, none, transpose}, Shape{51, 64, 40, transpose, none},
        Shape{16, 459, 64, none, transpose}, Shape{459, 33, 64, none, transpose}, Shape{64, 128, 512, transpose, none},
        Shape{100, 8, 64, transpose, transpose}, Shape{29, 48, 33, none, none}, Shape{45, 96, 1100, none, transpose},
        Shape{15, 33, 513, transpose, none}}) {
    for (int flags = 0; flags < 32; flags += 3) {
      check<Space, float>(s, flags & 1, flags & 2, flags & 4, flags & 8, flags & 16, 5e-6);
      check<Space, double>(s, flags & 1, flags & 2, flags & 4, flags & 8, flags & 16, 1e-13);
      check<Space, float>(s, flags & 1, flags & 2, flags & 4, flags & 8, flags & 16, 5e-6, 0.25);
    }
  }
}

TEST(Gemm, SerialWithEveryEpilogue) { check_all<Kokkos::Serial>(); }
#if defined(KOKKOS_ENABLE_OPENMP)
TEST(Gemm, OpenMPWithEveryEpilogue) { check_all<Kokkos::OpenMP>(); }
#endif

// cases.md: K = 512 in fp32 mode is within 1e-5.
TEST(Gemm, K512InFp32IsWithin1e5) {
  check<Kokkos::DefaultHostExecutionSpace, float>({256, 256, 512, Op::none, Op::transpose}, false, false, false, false,
                                                  false, 1e-5);
}

#if !defined(VULPES_HOST_GEMM_KOKKOS_KERNELS)
// Neighbours with one op(B) share its copy; others must not.
TEST(Gemm, ABatchOnThisThreadGivesWhatItsProductsGive) {
  Numbers numbers;
  constexpr int k = 70, n = 40, stride = 48;
  std::vector<float> a(60 * k), b(2 * n * k), c(60 * stride), single(60 * stride);
  for (auto* v : {&a, &b}) {
    for (float& x : *v) x = static_cast<float>(numbers.next());
  }
  const struct {
    int row, rows, second;
    Op op_b;
  } parts[] = {{0, 17, 0, Op::transpose}, {17, 3, 0, Op::transpose}, {20, 20, 1, Op::transpose}, {40, 20, 1, Op::none}};
  const auto batch_into = [&](std::vector<float>& to) {
    ProductBatch<float> batch;
    for (const auto& part : parts) {
      Product<float> p;
      p.op_b = part.op_b;
      p.a = {a.data() + part.row * k, part.rows, k, k};
      p.b = {b.data() + part.second * n * k, part.op_b == Op::none ? k : n, part.op_b == Op::none ? n : k,
             part.op_b == Op::none ? n : k};
      p.c = {to.data() + part.row * stride, part.rows, n, stride};
      batch.add(p);
    }
    return batch;
  };
  multiply_on_this_thread(batch_into(c));
  const ProductBatch<float> all = batch_into(single);
  for (int i = 0; i < all.count; ++i) multiply(Kokkos::Serial(), "test", all.products[i]);
  EXPECT_EQ(c, single);
}
#endif

TEST(Gemm, NaNGoesThroughReluAndBias) {
  float a = std::nanf(""), b = 1, c = 0, bias = 1;
  Product<float> p;
  p.a = {&a, 1, 1, 1};
  p.b = {&b, 1, 1, 1};
  p.c = {&c, 1, 1, 1};
  p.column_bias = &bias;
  p.relu = true;
  multiply(Kokkos::Serial(), "test", p);
  EXPECT_TRUE(std::isnan(c));
}

}  // namespace
}  // namespace vulpes
