// Which functions of CUDA's interfaces the rows are about, by name.
#include <gtest/gtest.h>

#include "vulpes/audit/observer.hpp"

namespace vulpes::audit {
namespace {

TEST(CudaCalls, AreKnownByName) {
  EXPECT_EQ(cuda_call_kind("cudaStreamSynchronize_ptsz"), CallKind::synchronisation);
  EXPECT_EQ(cuda_call_kind("cudaEventSynchronize"), CallKind::event_wait);
  EXPECT_EQ(cuda_call_kind("cuEventQuery"), CallKind::poll);
  EXPECT_EQ(cuda_call_kind("cudaMemcpyAsync"), CallKind::copy);
  EXPECT_EQ(cuda_call_kind("cuMemsetD32Async"), CallKind::memset);
  EXPECT_EQ(cuda_call_kind("cudaGraphLaunch"), CallKind::graph_launch);
  EXPECT_EQ(cuda_call_kind("cudaGraphInstantiateWithFlags"), CallKind::recording);
  EXPECT_EQ(cuda_call_kind("cuLaunchKernelEx"), CallKind::launch);
  EXPECT_EQ(cuda_call_kind("cudaMallocAsync"), CallKind::allocation);
  EXPECT_EQ(cuda_call_kind("cuMemFree_v2"), CallKind::deallocation);
  EXPECT_FALSE(cuda_call_kind("cudaGetLastError"));
  EXPECT_FALSE(cuda_call_kind("cuEventRecord"));
  EXPECT_FALSE(cuda_call_kind("cudaGraphUpload"));
}

}  // namespace
}  // namespace vulpes::audit
