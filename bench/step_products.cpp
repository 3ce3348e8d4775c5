#include "step_products.hpp"

#include <cblas.h>

#include "harness.hpp"

namespace vulpes::bench {
namespace {

void gemm(const Product<float>& p, int row0, int rows, int column0, int columns) {
  if (rows <= 0 || columns <= 0) return;
  const float* a = p.a.data + static_cast<std::int64_t>(row0) * (p.op_a == Op::none ? p.a.stride : 1);
  const float* b = p.b.data + static_cast<std::int64_t>(column0) * (p.op_b == Op::none ? 1 : p.b.stride);
  float* c = p.c.data + static_cast<std::int64_t>(row0) * p.c.stride + column0;
  cblas_sgemm(CblasRowMajor, p.op_a == Op::none ? CblasNoTrans : CblasTrans,
              p.op_b == Op::none ? CblasNoTrans : CblasTrans, rows, columns, p.k(), 1.0f, a, p.a.stride, b, p.b.stride,
              p.accumulate ? 1.0f : 0.0f, c, p.c.stride);
}

/// Strip `part` of `parts` of n, cut at multiples of 16.
std::pair<int, int> strip(int n, int part, int parts) {
  const int units = (n + 15) / 16, begin = std::min(n, units * part / parts * 16);
  return {begin, std::min(n, units * (part + 1) / parts * 16) - begin};
}

void run_launch(const Kokkos::DefaultHostExecutionSpace& space, const ProductLaunch& launch, Way way) {
  const ProductBatch<float>& batch = launch.batch;
  const ProductBatch<float>* products = &batch;
  if (way == Way::one_thread || way == Way::openblas) {
    for (int i = 0; i < batch.count; ++i) gemm(batch.products[i], 0, batch.products[i].m(), 0, batch.products[i].n());
    return;
  }
  const int parts = space.concurrency();
  Kokkos::parallel_for("vulpes::bench::products", range(space, parts), [=](std::int64_t part) {
    for (int i = 0; i < products->count; ++i) {
      const Product<float>& p = products->products[i];
      const auto [begin, count] = strip(way == Way::rows ? p.m() : p.n(), static_cast<int>(part), parts);
      if (way == Way::rows)
        gemm(p, begin, count, 0, p.n());
      else
        gemm(p, 0, p.m(), begin, count);
    }
  });
}

double time_launch(const Kokkos::DefaultHostExecutionSpace& space, const ProductLaunch& launch, Way way) {
  if (way == Way::openblas) openblas_set_num_threads(space.concurrency());
  const double began = seconds_now();
  run_launch(space, launch, way);
  const double taken = seconds_now() - began;
  if (way == Way::openblas) openblas_set_num_threads(1);
  return taken;
}

Product<float> product(Op op_a, Block<const float> a, Op op_b, Block<const float> b, Block<float> c,
                       bool accumulate = false) {
  Product<float> p;
  p.op_a = op_a;
  p.op_b = op_b;
  p.a = a;
  p.b = b;
  p.c = c;
  p.accumulate = accumulate;
  return p;
}

}  // namespace

const char* name_of(Way way) {
  constexpr const char* names[ways] = {"one thread", "split by rows", "split by columns", "OpenBLAS' threads"};
  return names[static_cast<int>(way)];
}

double ProductLaunch::flops() const {
  double sum = 0;
  for (int i = 0; i < batch.count; ++i) sum += batch.products[i].flops();
  return sum;
}

void StepProducts::add(const char* label, std::initializer_list<Product<float>> products) {
  ProductLaunch launch;
  launch.label = label;
  for (const Product<float>& p : products) launch.batch.add(p);
  launches_.push_back(launch);
}

StepProducts::StepProducts(const kernels::NetworkShape& s, int batch)
    : network_(s),
      parameters_(network_.layout.size()),
      target_(network_.layout.size()),
      gradient_(network_.layout.size()),
      buffers_(space_, s, {batch}, 1) {
  // Values in a range that no product of the chain leaves for the denormals or the infinities.
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i] = target_[i] =
        0.1f * (uniform_float(random_words({1, 1}, Purpose::test, 0, static_cast<std::uint32_t>(i))[0]) - 0.5f);
  }
  Kokkos::deep_copy(space_, buffers_.online.input, 0.5f);
  Kokkos::deep_copy(space_, buffers_.loss.logit_gradient, 1e-3f);
  space_.fence("vulpes::bench::step_products");

  const auto weight = [&](std::vector<float>& of, int tensor) { return network_.matrix(of.data(), tensor); };
  constexpr auto N = Op::none, T = Op::transpose;
  const int hh = s.head_hidden, width = s.hidden2;

  const auto forward = [&](std::vector<float>& p, const kernels::Activations<Space, float>& a, int rows) {
    const auto top = [&](const Matrix<float, Space>& m) { return kernels::block_of(m).rows_from(0, rows); };
    const auto layer = [&](const char* label, Block<float> x, Block<float> w, Block<float> y) {
      add(label, {product(N, x, T, w, y)});
    };
    layer("forward::trunk1", top(a.input), weight(p, network_.trunk_weight[0]), top(a.trunk1));
    layer("forward::trunk2", top(a.trunk1), weight(p, network_.trunk_weight[1]), top(a.trunk2));
    Block<float> h = top(a.trunk2);
    for (int l = 0; l < s.blocks; ++l) {
      const std::int64_t offset = static_cast<std::int64_t>(l) * a.rows * width;
      layer("forward::block", h, weight(p, network_.block_weight[l]),
            {a.block_relu.data() + offset, rows, width, width});
      h = {a.block_output.data() + offset, rows, width, width};
    }
    layer("forward::hidden", h, network_.hidden_matrix(p.data()), top(a.hidden));
    const auto head = [&](int d) {
      return product(N, weight(p, network_.output_weight[d]), T, top(a.hidden).columns_from(d * hh, hh),
                     a.logit_columns(0, rows).rows_from(network_.head_first_logit(d), network_.head_outputs(d)));
    };
    add("forward::outputs", {head(0), head(1), head(2), head(3)});
  };
  forward(parameters_, buffers_.online, 2 * batch);
  forward(target_, buffers_.target_next, batch);

  const kernels::Activations<Space, float>& a = buffers_.online;
  const auto top = [&](const Matrix<float, Space>& m) { return kernels::block_of(m).rows_from(0, batch); };
  const Block<float> dlogits = kernels::block_of(buffers_.loss.logit_gradient).columns_from(0, batch);
  const Block<float> dhidden = kernels::block_of(buffers_.backward.hidden),
                     dh = kernels::block_of(buffers_.backward.trunk2);
  const Block<float> dblocks = kernels::block_of(buffers_.backward.block),
                     dtrunk1 = kernels::block_of(buffers_.backward.trunk1);
  const auto dl = [&](int d) { return dlogits.rows_from(network_.head_first_logit(d), network_.head_outputs(d)); };
  const auto dw = [&](int d) {
    return product(N, dl(d), N, top(a.hidden).columns_from(d * hh, hh), weight(gradient_, network_.output_weight[d]));
  };
  const auto dx = [&](int d) {
    return product(T, dl(d), N, weight(parameters_, network_.output_weight[d]), dhidden.columns_from(d * hh, hh));
  };
  add("backward::output_weights", {dw(0), dw(1), dw(2), dw(3)});
  add("backward::output_inputs", {dx(0), dx(1), dx(2), dx(3)});
  const auto weights = [&](const char* label, Block<float> dy, Block<float> x, Block<float> to) {
    add(label, {product(T, dy, N, x, to)});
  };
  weights("backward::hidden_weights", dhidden, a.trunk_output().rows_from(0, batch),
          network_.hidden_matrix(gradient_.data()));
  add("backward::hidden_inputs", {product(N, dhidden, N, network_.hidden_matrix(parameters_.data()), dh)});
  for (int l = s.blocks - 1; l >= 0; --l) {
    const Block<float> dblock = dblocks.rows_from(l * batch, batch);
    const Block<float> x = l == 0
                               ? top(a.trunk2)
                               : Block<float>{a.block_output.data() + static_cast<std::int64_t>(l - 1) * a.rows * width,
                                              batch, width, width};
    weights("backward::block_weights", dblock, x, weight(gradient_, network_.block_weight[l]));
    add("backward::block_inputs", {product(N, dblock, N, weight(parameters_, network_.block_weight[l]), dh, true)});
  }
  weights("backward::trunk2_weights", dh, top(a.trunk1), weight(gradient_, network_.trunk_weight[1]));
  add("backward::trunk2_inputs", {product(N, dh, N, weight(parameters_, network_.trunk_weight[1]), dtrunk1)});
  weights("backward::trunk1_weights", dtrunk1, top(a.input), weight(gradient_, network_.trunk_weight[0]));
}

void StepProducts::calibrate(int rounds) {
  std::vector<std::vector<double>> times(launches_.size() * ways);
  for (int round = 0; round < rounds + 1; ++round) {
    for (int w = 0; w < ways; ++w) {
      for (std::size_t i = 0; i < launches_.size(); ++i) {
        const double t = time_launch(space_, launches_[i], static_cast<Way>(w));
        if (round > 0) times[i * ways + w].push_back(t);
      }
    }
  }
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    for (int w = 0; w < ways; ++w) {
      const double t = median(times[i * ways + w]);
      if (w == 0 || t < launches_[i].best_seconds) {
        launches_[i].best_seconds = t;
        launches_[i].best = static_cast<Way>(w);
      }
    }
  }
}

double StepProducts::run() const {
  double sum = 0;
  for (const ProductLaunch& l : launches_) sum += time_launch(space_, l, l.best);
  return sum;
}

double StepProducts::flops() const {
  double sum = 0;
  for (const ProductLaunch& l : launches_) sum += l.flops();
  return sum;
}

}  // namespace vulpes::bench
