// Listens to Kokkos' tools interface: what a step launches, where, and that it neither allocates, copies nor waits.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "training_parts.hpp"

namespace vulpes::trainer {
namespace {

namespace tools = Kokkos::Tools::Experimental;

struct Event {
  enum Kind { launch, fence, copy, allocation } kind;
  std::string name;
  std::uint32_t device;
  std::uint64_t bytes;
};

std::vector<Event>* events = nullptr;

/// Records events while it lives; tools that were loaded from outside are not called in that time.
class Listener {
 public:
  Listener() : before_(tools::get_callbacks()) {
    events = &events_;
    const auto launched = [](const char* name, std::uint32_t device, std::uint64_t*) {
      events->push_back({Event::launch, name, device, 0});
    };
    tools::set_begin_parallel_for_callback(launched);
    tools::set_begin_parallel_reduce_callback(launched);
    tools::set_begin_parallel_scan_callback(launched);
    tools::set_begin_fence_callback([](const char* name, std::uint32_t device, std::uint64_t*) {
      // Kokkos fences before and after each kernel because a tool listens.
      const bool own = std::string(name).find("Kokkos Profile Tool Fence") != std::string::npos;
      if (!own) events->push_back({Event::fence, name, device, 0});
    });
    tools::set_begin_deep_copy_callback([](Kokkos::Tools::SpaceHandle, const char* to, const void*,
                                           Kokkos::Tools::SpaceHandle, const char* from, const void*,
                                           std::uint64_t bytes) {
      events->push_back({Event::copy, std::string(from) + " -> " + to, 0, bytes});
    });
    tools::set_allocate_data_callback(
        [](Kokkos::Tools::SpaceHandle, const char* name, const void*, std::uint64_t bytes) {
          // Kokkos' own scratch memory of a new instance.
          if (std::string(name).rfind("Kokkos::", 0) != 0) events->push_back({Event::allocation, name, 0, bytes});
        });
  }
  ~Listener() { stop(); }
  void stop() {
    if (events == nullptr) return;
    tools::set_callbacks(before_);
    events = nullptr;
  }
  std::vector<Event> of(Event::Kind kind) const {
    std::vector<Event> r;
    std::copy_if(events_.begin(), events_.end(), std::back_inserter(r), [&](const Event& e) { return e.kind == kind; });
    return r;
  }

 private:
  tools::EventSet before_;
  std::vector<Event> events_;
};

std::string names(const std::vector<Event>& list) {
  std::string text;
  for (const Event& e : list) text += "  " + e.name + "\n";
  return text;
}

template <class Space>
void expect_labelled_and_on(const Space& space, const std::vector<Event>& launches) {
  ASSERT_FALSE(launches.empty());
  for (const Event& e : launches) {
    EXPECT_EQ(e.name.rfind("vulpes::", 0), 0u) << "label '" << e.name << "'";
    EXPECT_EQ(e.device, tools::device_id(space)) << e.name << " runs on another instance";
  }
}

template <class Space>
void expect_nothing_but_launches(const Listener& listener) {
  EXPECT_TRUE(listener.of(Event::fence).empty()) << names(listener.of(Event::fence));
  EXPECT_TRUE(listener.of(Event::copy).empty()) << names(listener.of(Event::copy));
  EXPECT_TRUE(listener.of(Event::allocation).empty()) << names(listener.of(Event::allocation));
}

template <class Space>
struct Listen : testing::Test {
  // Not the default instance: a launch that forgot its instance is on another one (host spaces: on the other space).
  const Space space = Kokkos::Experimental::partition_space(Space(), 1)[0];
};
TYPED_TEST_SUITE(Listen, test::EachSpace);

TYPED_TEST(Listen, AStepLaunchesLabelledKernelsOnItsInstanceAndNothingElse) {
  test::TrainingParts<TypeParam> parts(this->space);
  for (int i = 0; i < 10; ++i) parts.collect_bar();
  parts.step();  // first use may set up what later ones have
  this->space.fence("vulpes::test::warm");

  Listener listener;
  for (int i = 0; i < 5; ++i) parts.step();  // warm-up, blend and C51
  listener.stop();
  this->space.fence("vulpes::test::steps");

  const std::vector<Event> launches = listener.of(Event::launch);
  expect_labelled_and_on(this->space, launches);
  expect_nothing_but_launches<TypeParam>(listener);
  ASSERT_EQ(launches.size() % 5, 0u) << "steps launch different numbers of kernels";
  const std::size_t a_step = launches.size() / 5;
  for (std::size_t i = a_step; i < launches.size(); ++i) EXPECT_EQ(launches[i].name, launches[i - a_step].name);
  std::vector<Event> one(launches.begin(), launches.begin() + static_cast<std::ptrdiff_t>(a_step));
  std::cout << a_step << " launches a step on " << TypeParam::name() << ":\n" << names(one);
  EXPECT_EQ(test::to_host(parts.learner->state)().now.iteration, 6u);
}

TYPED_TEST(Listen, CollectionLaunchesLabelledKernelsOnItsInstanceAndNothingElse) {
  test::TrainingParts<TypeParam> parts(this->space);
  parts.collect_bar();
  this->space.fence("vulpes::test::warm");
  Listener listener;
  kernels::refresh_new_priority(this->space, parts.replay.ring);
  for (int i = 0; i < 3; ++i) parts.collect_bar();
  listener.stop();
  expect_labelled_and_on(this->space, listener.of(Event::launch));
  expect_nothing_but_launches<TypeParam>(listener);
}

// "Nothing copies weights between two stores": the learner allocates five buffers of the layout's size, and four more
// for the snapshot of a rollback; a step none.
TYPED_TEST(Listen, ALearnerAllocatesFiveBuffersOfTheLayoutAndFourForItsSnapshot) {
  const kernels::NetworkShape shape = agent::network_shape(test::small_config().network, 20);
  const kernels::Network network(shape);
  const std::vector<float> initial = agent::initial_parameters(network, {1, 1});
  for (const bool snapshots : {false, true}) {
    Listener listener;
    const Learner<TypeParam> learner(this->space, shape, initial, {3, 4, false, snapshots});
    listener.stop();
    std::size_t buffers = 0;
    for (const Event& e : listener.of(Event::allocation)) {
      EXPECT_EQ(e.name.rfind("vulpes::", 0), 0u) << "allocation '" << e.name << "'";
      buffers += e.bytes >= network.layout.size() * sizeof(float);
    }
    EXPECT_EQ(buffers, snapshots ? 9u : 5u) << names(listener.of(Event::allocation));
  }
}

}  // namespace
}  // namespace vulpes::trainer
