# Writes OUT with the commit of SOURCE; touches it only when the commit changed.
cmake_policy(VERSION 3.22)
execute_process(
  COMMAND git -C ${SOURCE} describe --always --dirty
  OUTPUT_VARIABLE commit
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit "unknown")
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#define VULPES_BENCH_COMMIT \"@commit@\"\n" @ONLY)
