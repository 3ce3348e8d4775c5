// Which back end of core/gemm serves host spaces.
#pragma once

namespace vulpes {

#if defined(VULPES_HOST_GEMM_KOKKOS_KERNELS)
inline constexpr bool host_gemm_is_kokkos_kernels = true;
#else
inline constexpr bool host_gemm_is_kokkos_kernels = false;
#endif

}  // namespace vulpes
