// CUDA back end: cuBLASLt with fused epilogues.
//
// cuBLASLt is column-major: a row-major C = op(A) op(B) is the column-major C' = op(B)' op(A)', so its A is our B and
// the other way round, and the blocks are what they are. Each stream has a work space of its own, without which two
// streams could share partial sums; algorithms that add partial sums in no fixed order are left out.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <Kokkos_Profiling_ScopedRegion.hpp>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "vulpes/core/errors.hpp"
#include "vulpes/core/gemm.hpp"
#include "vulpes/core/instances_cuda.hpp"

namespace vulpes {
namespace {

constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

void check_cublas(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw RunError(std::string("cuBLASLt: ") + doing + ": " + cublasLtGetStatusString(status));
}

/// Largest power of two up to 256 that divides an address.
std::uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(256, address & (~address + 1)));
}

template <class Real>
constexpr cudaDataType_t data_type = std::is_same_v<Real, float> ? CUDA_R_32F : CUDA_R_64F;

template <class Real>
cublasComputeType_t compute_type(Precision precision) {
  if (std::is_same_v<Real, double>) return CUBLAS_COMPUTE_64F;
  return precision == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/// What an algorithm is chosen for.
struct Shape {
  int m, n, k, op_a, op_b, lda, ldb, ldc, epilogue, compute, type;
  std::uint32_t align_a, align_b, align_c;
  auto key() const {
    return std::tie(m, n, k, op_a, op_b, lda, ldb, ldc, epilogue, compute, type, align_a, align_b, align_c);
  }
  bool operator<(const Shape& other) const { return key() < other.key(); }
};

/// Descriptors and algorithm of a shape; nothing was found where the library has none.
struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool found = false;

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    if (a) cublasLtMatrixLayoutDestroy(a);
    if (b) cublasLtMatrixLayoutDestroy(b);
    if (c) cublasLtMatrixLayoutDestroy(c);
    if (operation) cublasLtMatmulDescDestroy(operation);
  }
};

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check_cublas(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), "describing a product");
}
template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check_cublas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
               "describing a preference");
}

/// Handle, work space and plans of one stream. Used by one host thread at a time.
class Context {
 public:
  Context() {
    check_cublas(cublasLtCreate(&handle_), "creating a handle");
    check_cuda(cudaMalloc(&workspace_, workspace_bytes), "allocating the work space of matrix products");
  }
  ~Context() {
    plans_.clear();
    cudaFree(workspace_);
    cublasLtDestroy(handle_);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Runs the product with `epilogue`, whose vector (bias or bias gradient) is `vector`; false where the library
  /// cannot.
  template <class Real>
  bool run(cudaStream_t stream, const Product<Real>& p, cublasLtEpilogue_t epilogue, const void* vector) {
    Shape s{p.m(),
            p.n(),
            p.k(),
            static_cast<int>(p.op_a),
            static_cast<int>(p.op_b),
            p.a.stride,
            p.b.stride,
            p.c.stride,
            static_cast<int>(epilogue),
            static_cast<int>(compute_type<Real>(p.precision)),
            static_cast<int>(data_type<Real>),
            alignment_of(p.a.data),
            alignment_of(p.b.data),
            alignment_of(p.c.data)};
    auto found = plans_.find(s);
    if (found == plans_.end()) {
      found = plans_.try_emplace(s).first;
      make_plan<Real>(found->second, s, vector);
    }
    Plan& plan = found->second;
    if (!plan.found) return false;
    if (vector) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
    const Real alpha = p.scale, beta = p.accumulate ? Real(1) : Real(0);
    check_cublas(cublasLtMatmul(handle_, plan.operation, &alpha, p.b.data, plan.a, p.a.data, plan.b, &beta, p.c.data,
                                plan.c, p.c.data, plan.c, &plan.algorithm, workspace_, workspace_bytes, stream),
                 "multiplying");
    return true;
  }

 private:
  template <class Real>
  void make_plan(Plan& plan, const Shape& s, const void* vector) {
    const cudaDataType_t type = data_type<Real>;
    check_cublas(cublasLtMatmulDescCreate(&plan.operation, static_cast<cublasComputeType_t>(s.compute), type),
                 "describing a product");
    const auto transposed = [](int op) { return op == static_cast<int>(Op::none) ? CUBLAS_OP_N : CUBLAS_OP_T; };
    set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, transposed(s.op_b));
    set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, transposed(s.op_a));
    set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<cublasLtEpilogue_t>(s.epilogue));
    if (vector) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
    const auto layout = [&](cublasLtMatrixLayout_t* l, int rows, int columns, int stride) {
      check_cublas(cublasLtMatrixLayoutCreate(l, type, rows, columns, stride), "describing a matrix");
    };
    const bool a_plain = s.op_b == static_cast<int>(Op::none), b_plain = s.op_a == static_cast<int>(Op::none);
    layout(&plan.a, a_plain ? s.n : s.k, a_plain ? s.k : s.n, s.ldb);
    layout(&plan.b, b_plain ? s.k : s.m, b_plain ? s.m : s.k, s.lda);
    layout(&plan.c, s.n, s.m, s.ldc);

    cublasLtMatmulPreference_t preference = nullptr;
    check_cublas(cublasLtMatmulPreferenceCreate(&preference), "describing a preference");
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s.align_b);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s.align_a);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s.align_c);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s.align_c);
    cublasLtMatmulHeuristicResult_t result{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.a, plan.b, plan.c,
                                                                 plan.c, preference, 1, &result, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    plan.found = status == CUBLAS_STATUS_SUCCESS && count > 0;
    if (plan.found) plan.algorithm = result.algo;
  }

  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<Shape, Plan> plans_;
};

Context& context_of(cudaStream_t stream) {
  static std::mutex mutex;
  static std::map<cudaStream_t, Context> contexts;
  const std::lock_guard lock(mutex);
  if (contexts.empty()) Kokkos::push_finalize_hook([] { contexts.clear(); });
  return contexts[stream];
}

/// The parts of the epilogue that the library did not fuse.
template <class Real>
void epilogue(const Kokkos::Cuda& space, const Product<Real>& p, bool bias, bool relu) {
  const int n = p.n();
  Kokkos::parallel_for(
      "vulpes::gemm::epilogue", range(space, static_cast<std::int64_t>(p.m()) * n), KOKKOS_LAMBDA(std::int64_t e) {
        const std::int64_t r = e / n, j = e % n;
        Real& c = p.c.data[r * p.c.stride + j];
        Real y = bias ? c + p.column_bias[j] : c;
        if (relu && y < Real(0)) y = Real(0);
        if (p.mask.data && !(p.mask.data[r * p.mask.stride + j] > Real(0))) y = Real(0);
        c = y;
      });
}

/// Sums of op(A) along K, where no epilogue gives them. A transposed A is read along its rows.
template <class Real>
void row_sums(const Kokkos::Cuda& space, const Product<Real>& p) {
  using Team = Kokkos::TeamPolicy<Kokkos::Cuda>::member_type;
  const int m = p.m(), k = p.k();
  if (p.op_a == Op::none) {
    Kokkos::parallel_for(
        "vulpes::gemm::row_sums", teams(space, m, 256), KOKKOS_LAMBDA(const Team& team) {
          const Real* row = p.a.data + static_cast<std::int64_t>(team.league_rank()) * p.a.stride;
          Real sum = 0;
          Kokkos::parallel_reduce(
              Kokkos::TeamThreadRange(team, k), [&](int i, Real& s) { s += row[i]; }, sum);
          Kokkos::single(Kokkos::PerTeam(team), [&] { p.row_sums[team.league_rank()] = sum; });
        });
    return;
  }
  constexpr int columns = 32, parts = 16;
  auto policy = teams(space, (m + columns - 1) / columns, columns * parts);
  using Scratch = Kokkos::View<Real*, Kokkos::Cuda::scratch_memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  policy.set_scratch_size(0, Kokkos::PerTeam(Scratch::shmem_size(columns * parts)));
  Kokkos::parallel_for(
      "vulpes::gemm::row_sums", policy, KOKKOS_LAMBDA(const Team& team) {
        const Scratch partial(team.team_scratch(0), columns * parts);
        const int thread = team.team_rank(), column = team.league_rank() * columns + thread % columns;
        Real sum = 0;
        if (column < m) {
          for (int i = thread / columns; i < k; i += parts)
            sum += p.a.data[static_cast<std::int64_t>(i) * p.a.stride + column];
        }
        partial(thread) = sum;
        team.team_barrier();
        if (thread < columns && column < m) {
          Real total = 0;
          for (int part = 0; part < parts; ++part) total += partial(part * columns + thread);
          p.row_sums[column] = total;
        }
      });
}

template <class Real>
void run(const Kokkos::Cuda& space, Context& context, const Product<Real>& p) {
  const cudaStream_t stream = space.cuda_stream();
  bool bias = p.column_bias != nullptr, relu = p.relu, sums = p.row_sums != nullptr, done = false;
  // A ReLU of the library would come before an added C and after the bias, as ours does; with C added it is left out.
  if (std::is_same_v<Real, float> && !p.accumulate) {
    if (bias || relu) {
      const cublasLtEpilogue_t fused = !relu   ? CUBLASLT_EPILOGUE_BIAS
                                       : !bias ? CUBLASLT_EPILOGUE_RELU
                                               : CUBLASLT_EPILOGUE_RELU_BIAS;
      done = context.run(stream, p, fused, p.column_bias);
      if (done) bias = relu = false;
    } else if (sums) {
      done = context.run(stream, p, CUBLASLT_EPILOGUE_BGRADB, p.row_sums);
      if (done) sums = false;
    }
  }
  if (!done && !context.run(stream, p, CUBLASLT_EPILOGUE_DEFAULT, nullptr)) {
    throw RunError("cuBLASLt has no algorithm for a product of " + std::to_string(p.m()) + " x " +
                   std::to_string(p.k()) + " x " + std::to_string(p.n()));
  }
  if (bias || relu || p.mask.data) epilogue(space, p, bias, relu);
  if (sums) row_sums(space, p);
}

}  // namespace

template <class Space, class Real>
void multiply(const Space& space, const char* label, const ProductBatch<Real>& batch) {
  const Kokkos::Profiling::ScopedRegion region(label);
  Context& context = context_of(space.cuda_stream());
  for (int i = 0; i < batch.count; ++i) run(space, context, batch.products[i]);
}

template <class Space>
const char* gemm_description() {
  static const std::string text = [] {
    const char* override_ = std::getenv("NVIDIA_TF32_OVERRIDE");
    const std::size_t version = cublasLtGetVersion();
    std::string t = "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100);
    if (override_) t += ", NVIDIA_TF32_OVERRIDE=" + std::string(override_) + " in the environment";
    return t;
  }();
  return text.c_str();
}

template void multiply<Kokkos::Cuda, float>(const Kokkos::Cuda&, const char*, const ProductBatch<float>&);
template void multiply<Kokkos::Cuda, double>(const Kokkos::Cuda&, const char*, const ProductBatch<double>&);
template const char* gemm_description<Kokkos::Cuda>();

}  // namespace vulpes
