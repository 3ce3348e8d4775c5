// A real recorded step that breaks one rule at a time: the audit must see it.
#include <gtest/gtest.h>

#include <functional>

#include "everything.hpp"
#include "faults.hpp"
#include "vulpes/audit/audit.hpp"
#include "vulpes/audit/gate.hpp"
#include "vulpes/audit/observer.hpp"
#include "vulpes/core/graph.hpp"

namespace vulpes::audit {
namespace {

/// Kernels that do next to nothing, under whatever label.
struct Touch {
  float* p;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { p[i] += 1.0f; }
};
template <class Space>
struct TouchByTeam {
  float* p;
  KOKKOS_FUNCTION void operator()(const typename Kokkos::TeamPolicy<Space>::member_type& team) const {
    Kokkos::single(Kokkos::PerTeam(team), TouchOne{p});
  }
  struct TouchOne {
    float* p;
    KOKKOS_FUNCTION void operator()() const { *p += 1.0f; }
  };
};
/// Says on the host's side that the device came here.
struct Arrive {
  volatile int* flag;
  KOKKOS_FUNCTION void operator()(std::int64_t) const { *flag = 1; }
};

/// What goes wrong: inside the recorded step, or beside its launch.
template <class Space>
struct Fault {
  using Lanes = trainer::Lanes<Space>;
  std::function<void(const Lanes&)> inside = [](const Lanes&) {};
  std::function<void(const Lanes&)> beside = [](const Lanes&) {};
  bool serial = false;  ///< one queue for both branches
  bool twice = false;   ///< two launches a step
  bool unrecorded = false;
  bool set_up_again = false;
  std::string backward = "fp32";  ///< precision that is used, where fp32 is asked for
};

template <class Space>
class BrokenStep : public testing::Test {
 protected:
  using Lanes = trainer::Lanes<Space>;
  static constexpr int steps = 5;

  /// The rows of a few steps with `fault`.
  std::vector<Row> rows_of(const Fault<Space>& fault) {
    io::Config c = test::everything();
    if (fault.backward == "tf32") {  // the library has such kernels for shapes of some size
      c.network = {256, 128, 1, 128, 51};
      c.train.batch = 1024;
    }
    const Facts base = facts(c);
    c.gemm.backward = fault.backward;
    trainer::test::TrainingParts<Space> parts(instance_of<Space>(Queue::main), c);
    for (int i = 0; i < 30; ++i) parts.collect_bar();
    Lanes lanes = parts.lanes;
    if (fault.serial) lanes.side = lanes.main;
    const auto body = [lanes, context = parts.context(), inside = fault.inside] {
      trainer::training_step(lanes, context, {});
      inside(lanes);
    };
    body();
    fault.beside(lanes);
    Kokkos::fence("vulpes::test::warm");

    Observer<Space> observer;
    Graph<Space> graph;
    {
      const InWindow window(Window::step_setup);
      if (!fault.unrecorded) graph = Graph<Space>(lanes.main, body);
    }
    for (int i = 0; fault.set_up_again && i < 20; ++i) {
      const InWindow window(Window::step_setup);
      Graph<Space>(lanes.main, body).launch(lanes.main);
    }
    for (int i = 0; i < steps; ++i) {
      const InWindow window(Window::step);
      if (fault.unrecorded) {
        body();
      } else {
        graph.launch(lanes.main);
        if (fault.twice) graph.launch(lanes.main);
      }
      fault.beside(lanes);
    }
    return step_rows(observer.finish(), base, 1);
  }

  /// Steps that were queued behind a closed gate.
  GateFacts gate_of(const Fault<Space>& fault) {
    trainer::test::TrainingParts<Space> parts(instance_of<Space>(Queue::main), test::everything());
    for (int i = 0; i < 30; ++i) parts.collect_bar();
    const Lanes lanes = parts.lanes;
    const auto body = [lanes, context = parts.context()] { trainer::training_step(lanes, context, {}); };
    body();
    const Graph<Space> graph(lanes.main, body);
    graph.launch(lanes.main);
    fault.beside(lanes);
    Kokkos::fence("vulpes::test::warm");
    GateFacts facts;
    Gate<Space> gate(lanes.main);
    gate.close(std::chrono::seconds(3));
    for (; facts.queued < facts.wanted; ++facts.queued) {
      graph.launch(lanes.main);
      fault.beside(lanes);
    }
    facts.released_by_time = !gate.open();
    Kokkos::fence("vulpes::test::gate");
    return facts;
  }

  void expect_broken(const Fault<Space>& fault, const std::string& name) {
    for (const Row& r : rows_of(fault)) {
      if (r.name == name) {
        EXPECT_EQ(r.verdict, Verdict::broken) << name << ": " << r.measured << " " << r.detail;
        return;
      }
    }
    FAIL() << "no row '" << name << "'";
  }
  Fault<Space> kernel_inside(const char* label) {
    Fault<Space> f;
    f.inside = [label, p = memory.data()](const Lanes& lanes) {
      Kokkos::parallel_for(label, range(lanes.main, 4096), Touch{p});
    };
    return f;
  }

  Vector<float, Space> memory{"vulpes::test::memory", 8192}, other{"vulpes::test::other", 8192};

 private:
  static Facts facts(const io::Config& c) {
    const trainer::test::TrainingParts<Space> parts(instance_of<Space>(Queue::main), c);
    return make_facts(c, parts.context());
  }
};
TYPED_TEST_SUITE(BrokenStep, trainer::test::EachSpace);

#define DEVICE_ONLY(why) \
  if (is_host_space<TypeParam>) GTEST_SKIP() << why

TYPED_TEST(BrokenStep, AStepAsItIsBreaksNothing) {
  for (const Row& r : this->rows_of({})) EXPECT_NE(r.verdict, Verdict::broken) << r.name << ": " << r.detail;
}

TYPED_TEST(BrokenStep, Synchronisation) {
  Fault<TypeParam> f;
  f.beside = [](const trainer::Lanes<TypeParam>& lanes) { lanes.main.fence("vulpes::test::fence"); };
  this->expect_broken(f, "synchronisations, polls, fences");
}

TYPED_TEST(BrokenStep, WaitForAnEvent) {
  DEVICE_ONLY("a host's events are nothing");
  Fault<TypeParam> f;
  f.beside = [](const trainer::Lanes<TypeParam>& lanes) {
    const Event<TypeParam> event;
    event.record(lanes.main);
    event.wait();
  };
  this->expect_broken(f, "synchronisations, polls, fences");
}

TYPED_TEST(BrokenStep, Poll) {
  DEVICE_ONLY("a host has no events to ask");
  Fault<TypeParam> f;
  f.beside = [](const trainer::Lanes<TypeParam>& lanes) { test::poll(lanes.main); };
  this->expect_broken(f, "synchronisations, polls, fences");
}

TYPED_TEST(BrokenStep, Copy) {
  Fault<TypeParam> beside, inside;
  inside.inside = beside.beside = [to = this->memory, from = this->other](const trainer::Lanes<TypeParam>& lanes) {
    Kokkos::deep_copy(lanes.main, to, from);
  };
  this->expect_broken(beside, "copies");
  this->expect_broken(inside, "copies");
}

TYPED_TEST(BrokenStep, Memset) {
  Fault<TypeParam> beside, inside;
  inside.inside = beside.beside = [to = this->memory](const trainer::Lanes<TypeParam>& lanes) {
    Kokkos::deep_copy(lanes.main, to, 0.0f);
  };
  this->expect_broken(beside, "memsets but of accumulators");
  this->expect_broken(inside, "memsets but of accumulators");
}

TYPED_TEST(BrokenStep, Allocation) {
  Fault<TypeParam> f;
  f.beside = [](const trainer::Lanes<TypeParam>& lanes) {
    allocate<Vector<float, TypeParam>>(lanes.main, "vulpes::test::allocation", 64);
  };
  this->expect_broken(f, "allocations");
}

TYPED_TEST(BrokenStep, SecondGraphLaunch) {
  DEVICE_ONLY("a host has no graphs");
  Fault<TypeParam> f;
  f.twice = true;
  this->expect_broken(f, "graph launches a step");
}

TYPED_TEST(BrokenStep, NoGraph) {
  DEVICE_ONLY("a host has no graphs");
  Fault<TypeParam> f;
  f.unrecorded = true;
  this->expect_broken(f, "graph launches a step");
  this->expect_broken(f, "launches besides the graph");
}

TYPED_TEST(BrokenStep, LaunchBesideTheGraph) {
  DEVICE_ONLY("a host's launches are what it replays");
  Fault<TypeParam> f;
  f.beside = this->kernel_inside("vulpes::loss").inside;
  this->expect_broken(f, "launches besides the graph");
}

TYPED_TEST(BrokenStep, SetUpAgain) {
  Fault<TypeParam> f;
  f.set_up_again = true;
  this->expect_broken(f, "steps out of the ordinary (first uses, recordings)");
}

TYPED_TEST(BrokenStep, ThirdSpectralLaunch) {
  Fault<TypeParam> f;
  f.inside = [launch = this->kernel_inside("vulpes::spectral::right").inside](const trainer::Lanes<TypeParam>& lanes) {
    const InPart part("spectral");
    launch(lanes);
  };
  this->expect_broken(f, "launches of the spectral norm");
}

TYPED_TEST(BrokenStep, OneTeam) {
  DEVICE_ONLY("a host launch has no teams");
  Fault<TypeParam> f;
  f.inside = [p = this->memory.data()](const trainer::Lanes<TypeParam>& lanes) {
    Kokkos::parallel_for("vulpes::forward::outputs", teams(lanes.main, 1, 32), TouchByTeam<TypeParam>{p});
  };
  this->expect_broken(f, "kernels of ours with one team for 4096 elements or more");
}

TYPED_TEST(BrokenStep, UndeclaredKernel) {
  this->expect_broken(this->kernel_inside("vulpes::test::undeclared"), "kernels of ours without an entry in work.hpp");
}

TYPED_TEST(BrokenStep, KernelWithoutALabelOfOurs) {
  this->expect_broken(this->kernel_inside("nobody's"), "launches without a label vulpes::");
}

TYPED_TEST(BrokenStep, KernelThatOnlyMoves) {
  this->expect_broken(this->kernel_inside("vulpes::collect::begin_episodes"),
                      "kernels of ours that only move over 4 kB");
}

TYPED_TEST(BrokenStep, SerialForwardPasses) {
  DEVICE_ONLY("a host has one queue, and one launch for all passes");
  Fault<TypeParam> f;
  f.serial = true;
  this->expect_broken(f, "forward passes that wait for another");
}

TYPED_TEST(BrokenStep, OtherPrecision) {
  DEVICE_ONLY("a host has one precision");
  Fault<TypeParam> f;
  f.backward = "tf32";
  this->expect_broken(f, "TF32 kernels of the library: forward, backward");
}

TYPED_TEST(BrokenStep, Spin) {
  DEVICE_ONLY("a host's launches return when they are done");
  EXPECT_EQ(gate_row(this->gate_of({})).verdict, Verdict::ok);
  // The host waits without asking anybody: no call of an interface shows it.
  const Kokkos::View<int[1], Kokkos::LayoutRight, Kokkos::SharedHostPinnedSpace> arrived("vulpes::test::arrived");
  Fault<TypeParam> f;
  f.beside = [arrived](const trainer::Lanes<TypeParam>& lanes) {
    volatile int* flag = arrived.data();
    *flag = 0;
    Kokkos::parallel_for("vulpes::test::arrive", range(lanes.main, 1), Arrive{flag});
    while (*flag == 0) {
    }
  };
  EXPECT_EQ(gate_row(this->gate_of(f)).verdict, Verdict::broken);
}

}  // namespace
}  // namespace vulpes::audit
