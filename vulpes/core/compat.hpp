// The one place that looks at Kokkos' version. The code compiles with Kokkos 4.5 to 5.x.
#pragma once

#include <Kokkos_Core.hpp>

#if KOKKOS_VERSION < 40500
#error "Vulpes needs Kokkos 4.5 or later"
#endif
