# One static library a folder; each links only the folder above it (docs/architecture.md).

add_library(vulpes_warnings INTERFACE)
target_compile_options(
  vulpes_warnings
  INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:-Wall -Wextra -Wshadow -Wno-unknown-pragmas>
            $<$<AND:$<BOOL:${VULPES_WARNINGS_AS_ERRORS}>,$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>>:-Werror>)

# errno and trap semantics cost vectorisation and are not used; value semantics (NaN, Inf, order) stay strict. Which
# of several multiply-adds a compiler fuses differs between two instances of one template, and with it the bits of
# Serial and OpenMP: none is fused unless the source says so.
add_library(vulpes_numerics INTERFACE)
target_compile_options(
  vulpes_numerics INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:-fno-math-errno -fno-trapping-math
                            -ffp-contract=off>)

if(VULPES_ENABLE_DEBUG_CHECKS)
  target_compile_definitions(vulpes_numerics INTERFACE VULPES_DEBUG_CHECKS)
endif()

if(VULPES_SANITIZE)
  add_compile_options(-fsanitize=${VULPES_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${VULPES_SANITIZE})
endif()

function(vulpes_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;PRIVATE_USES" ${ARGN})
  add_library(vulpes_${name} STATIC ${ARG_SOURCES})
  add_library(vulpes::${name} ALIAS vulpes_${name})
  target_include_directories(vulpes_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                   $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(
    vulpes_${name}
    PUBLIC ${ARG_USES}
    PRIVATE $<BUILD_INTERFACE:vulpes_warnings> $<BUILD_INTERFACE:vulpes_numerics> ${ARG_PRIVATE_USES})
endfunction()
