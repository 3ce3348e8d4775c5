// CUDA graphs by stream capture.
#include <cuda_runtime.h>

#include "vulpes/core/graph.hpp"
#include "vulpes/core/instances_cuda.hpp"

namespace vulpes {
namespace {

void require(cudaError_t code, const char* phase) {
  if (code != cudaSuccess) throw GraphError(std::string(phase) + ": " + cudaGetErrorString(code));
}

void inject(GraphPhase fail_at, GraphPhase here, const char* phase) {
  if (fail_at == here) throw GraphError(std::string("injected failure of phase ") + phase);
}

/// Clears what a failed recording left behind; a broken device answers with its error again.
void require_usable(cudaStream_t stream) {
  cudaGetLastError();
  const cudaError_t state = cudaStreamQuery(stream);
  if (state != cudaErrorNotReady) check_cuda(state, "after a graph could not be recorded");
}

/// A capture that always ends: by `end`, or when it goes out of scope.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin");
    active_ = true;
  }
  ~Capture() {
    if (!active_) return;
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream_, &graph);
    if (graph) cudaGraphDestroy(graph);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  std::shared_ptr<CUgraph_st> end() {
    active_ = false;
    cudaGraph_t graph = nullptr;
    const cudaError_t code = cudaStreamEndCapture(stream_, &graph);
    std::shared_ptr<CUgraph_st> owned(graph, [](cudaGraph_t g) {
      if (g) cudaGraphDestroy(g);
    });
    require(code, "end");
    return owned;
  }

 private:
  cudaStream_t stream_;
  bool active_ = false;
};

}  // namespace

template <>
struct Graph<Kokkos::Cuda>::Implementation {
  std::shared_ptr<CUgraphExec_st> executable;
  bool launch_fails;
};

template <>
Graph<Kokkos::Cuda>::Graph(const Kokkos::Cuda& space, std::function<void()> body, GraphPhase fail_at) {
  const cudaStream_t stream = space.cuda_stream();
  try {
    inject(fail_at, GraphPhase::begin, "begin");
    std::shared_ptr<CUgraph_st> graph;
    {
      Capture capture(stream);
      try {
        body();
      } catch (const std::exception& e) {
        throw GraphError(std::string("body: ") + e.what());
      }
      inject(fail_at, GraphPhase::body, "body");
      graph = capture.end();
    }
    inject(fail_at, GraphPhase::end, "end");
    cudaGraphExec_t executable = nullptr;
    require(cudaGraphInstantiate(&executable, graph.get(), 0), "instantiate");
    std::shared_ptr<CUgraphExec_st> owned(executable, [](cudaGraphExec_t e) { cudaGraphExecDestroy(e); });
    inject(fail_at, GraphPhase::instantiate, "instantiate");
    require(cudaGraphUpload(executable, stream), "upload");
    inject(fail_at, GraphPhase::upload, "upload");
    implementation_ = std::make_shared<Implementation>(Implementation{owned, fail_at == GraphPhase::launch});
  } catch (const GraphError&) {
    require_usable(stream);
    throw;
  }
}

template <>
void Graph<Kokkos::Cuda>::launch(const Kokkos::Cuda& space) const {
  const cudaStream_t stream = space.cuda_stream();
  try {
    if (implementation_->launch_fails) throw GraphError("injected failure of phase launch");
    require(cudaGraphLaunch(implementation_->executable.get(), stream), "launch");
  } catch (const GraphError&) {
    require_usable(stream);
    throw;
  }
}

template class Graph<Kokkos::Cuda>;

}  // namespace vulpes
