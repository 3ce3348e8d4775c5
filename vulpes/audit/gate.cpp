#include "vulpes/audit/gate.hpp"

namespace vulpes::audit {

template <class Space>
void Gate<Space>::close(std::chrono::seconds patience) {
  volatile int* flag = flags_.data();
  *flag = 0;
  opened_ = late_ = false;
  Kokkos::parallel_for("vulpes::audit::gate", range(space_, 1), Spin{flag});
  thread_ = std::thread([this, flag, patience] {
    std::unique_lock lock(mutex_);
    late_ = !wake_.wait_for(lock, patience, [this] { return opened_; });
    *flag = 1;
  });
}

template <class Space>
bool Gate<Space>::open() {
  if (!closed()) return true;
  {
    const std::lock_guard lock(mutex_);
    opened_ = true;
  }
  wake_.notify_one();
  thread_.join();
  return !late_;
}

#define INSTANTIATE(S) template class Gate<S>;
VULPES_FOR_EACH_SPACE(INSTANTIATE)
#undef INSTANTIATE

}  // namespace vulpes::audit
