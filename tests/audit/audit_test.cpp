// The whole audit on each back end, with every part of learning on.
#include "vulpes/audit/audit.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "everything.hpp"
#include "vulpes/io/config_io.hpp"

namespace vulpes::audit {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(c));
  return text;
}

template <class Space>
struct WholeAudit : testing::Test {
  static io::Config config() {
    io::Config c = test::everything();
    c.run.device = lower(Space::name());
    return c;
  }
  static Verdict verdict(const Report& report, const std::string& name) {
    for (const Row& r : report.rows) {
      if (r.name == name) return r.verdict;
    }
    throw std::runtime_error("no row '" + name + "'");
  }
};
TYPED_TEST_SUITE(WholeAudit, trainer::test::EachSpace);

TYPED_TEST(WholeAudit, FindsNothingBroken) {
  const Report report = run(this->config(), {200});
  EXPECT_FALSE(report.broken()) << to_text(report);
  EXPECT_GT(report.times.steps, 200);
  // All parts of a step were seen at work; the host's forward passes are one launch.
  EXPECT_EQ(report.times.parts.size(), is_host_space<TypeParam> ? 9u : 10u) << to_text(report);
  EXPECT_GT(report.times.busy, 0);
  EXPECT_EQ(report.nodes > 0, !is_host_space<TypeParam>);
  EXPECT_EQ(this->verdict(report, "steps queued while the device stands still"),
            is_host_space<TypeParam> ? Verdict::unseen : Verdict::ok);

  const nlohmann::json j = nlohmann::json::parse(to_json(report, "abc"));
  EXPECT_EQ(j.at("rows").size(), report.rows.size());
  EXPECT_EQ(j.at("broken"), false);
  EXPECT_EQ(j.at("commit"), "abc");
  EXPECT_EQ(j.at("sources").get<std::string>().size(), 64u);
}

TYPED_TEST(WholeAudit, SeesARunKernelByKernel) {
  io::Config c = this->config();
  c.graph.mode = "eager";
  const Report report = run(c, {24});
  EXPECT_EQ(report.broken(), !is_host_space<TypeParam>) << to_text(report);
  EXPECT_EQ(this->verdict(report, "graph launches a step"),
            is_host_space<TypeParam> ? Verdict::unseen : Verdict::broken);
}

TYPED_TEST(WholeAudit, SeesGraphsOfEachPhase) {
  io::Config c = this->config();
  c.graph.mode = "split";
  const Report report = run(c, {24});
  EXPECT_FALSE(report.broken()) << to_text(report);
}

TEST(Audited, HasTwoFoldsAndTwoEpochsAFold) {
  const io::Config c = audited(test::everything(), {10});
  EXPECT_EQ(c.train.steps, 10);
  EXPECT_EQ(c.train.epoch_steps, 5);
  EXPECT_EQ(c.folds.kind, "rolling");
  EXPECT_EQ(c.folds.count, 2);
  io::Config own = test::everything();
  own.folds.kind = "anchored";
  own.folds.count = 3;
  own.train.epoch_steps = 7;
  EXPECT_EQ(audited(own, {100}).folds.kind, "anchored");
  EXPECT_EQ(audited(own, {100}).folds.count, 3);
  EXPECT_EQ(audited(own, {100}).train.epoch_steps, 7);
}

}  // namespace
}  // namespace vulpes::audit
