# Where every dependency comes from. Installed packages are used as they are; `scripts/deps` puts the
# rest into .deps/ (Kokkos, Kokkos Kernels, Arrow), which the presets name in CMAKE_PREFIX_PATH.

find_package(Kokkos 4.5...<6 CONFIG REQUIRED)
find_package(KokkosKernels 4.5...<6 CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(tomlplusplus CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(HDF5 REQUIRED COMPONENTS C)
find_path(RANDOM123_INCLUDE_DIR Random123/philox.h REQUIRED)

# OpenBLAS built for OpenMP shares Kokkos' thread pool; the pthreads build would fight with it.
find_path(OPENBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas-openmp openblas REQUIRED)
find_library(OPENBLAS_LIBRARY NAMES openblas PATH_SUFFIXES openblas-openmp REQUIRED)

if(VULPES_ENABLE_ARROW)
  find_package(VulpesArrow REQUIRED)
endif()
