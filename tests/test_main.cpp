#include <gtest/gtest.h>

#include "vulpes/core/runtime.hpp"

int main(int argc, char** argv) {
  const vulpes::Runtime runtime(argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
