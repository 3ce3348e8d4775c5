#include "vulpes/io/config_io.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <type_traits>

#include "temporary_folder.hpp"
#include "vulpes/core/errors.hpp"

namespace vulpes::io {
namespace {

class ConfigFile : public TemporaryFolder {
 protected:
  std::string problem(const std::string& toml) {
    write("c.toml", toml);
    return error_of<InputError>([&] { read_config(path("c.toml")); });
  }
  std::string set_problem(const std::string& setting) {
    Config config;
    const std::string message = error_of<InputError>([&] { apply_setting(config, setting); });
    EXPECT_TRUE(difference(config, Config{}).empty()) << "a refused setting changed something";
    return message;
  }
};

TEST_F(ConfigFile, EmptyPathGivesTheDefaultsAndTheyAreValid) {
  const Config config = read_config("");
  EXPECT_TRUE(difference(config, Config{}).empty());
  EXPECT_NO_THROW(check(config));
}

TEST_F(ConfigFile, ReadsWhatTheFileSaysAndLeavesTheRest) {
  write("c.toml",
        "[agent]\ngamma = 0.9\nvmax = 5\n[train]\nsteps = 1e6\n[features]\nreturn_horizons = [1, 3]\ncalendar = false\n"
        "[data]\nfile = 'a b.csv'\n");
  const Config config = read_config(path("c.toml"));
  EXPECT_EQ(config.agent.gamma, 0.9);
  EXPECT_EQ(config.agent.vmax, 5.0);
  EXPECT_EQ(config.train.steps, 1000000);
  EXPECT_EQ(config.features.return_horizons, (std::vector<std::int64_t>{1, 3}));
  EXPECT_FALSE(config.features.calendar);
  EXPECT_EQ(config.data.file, "a b.csv");
  EXPECT_EQ(difference(config, Config{}),
            (std::vector<std::string>{"data.file", "features.return_horizons", "features.calendar", "agent.gamma",
                                      "agent.vmax", "train.steps"}));
}

TEST_F(ConfigFile, UnknownNamesAreRefusedWithTheNearestOne) {
  EXPECT_EQ(problem("[agent]\nn_step = 1\ngama = 0.9\n"),
            "c.toml:3:1: unknown setting 'agent.gama'; did you mean 'agent.gamma'?");
  EXPECT_EQ(problem("[agnet]\ngamma = 0.9\n"),
            "c.toml:2:1: unknown setting 'agnet.gamma'; did you mean 'agent.gamma'?");
  EXPECT_EQ(problem("gamma = 0.9\n"), "c.toml:1:1: unknown setting 'gamma'; did you mean 'agent.gamma'?");
  EXPECT_EQ(problem("[qqqqqqqq]\nwwwwwwww = 1\n"), "c.toml:2:1: unknown setting 'qqqqqqqq.wwwwwwww'");
  EXPECT_EQ(problem("[fold]\n"), "c.toml:1:2: unknown section [fold]; did you mean [folds]?");
}

TEST_F(ConfigFile, WrongTypesAreRefused) {
  EXPECT_EQ(problem("[agent]\ngamma = \"x\"\n"), "c.toml:2:1: 'agent.gamma' must be a number, not text");
  EXPECT_EQ(problem("[train]\nsteps = 1.5\n"), "c.toml:2:1: 'train.steps' must be an integer, not 1.5");
  EXPECT_EQ(problem("[train]\nsteps = true\n"), "c.toml:2:1: 'train.steps' must be an integer, not a boolean");
  EXPECT_EQ(problem("[agent]\ndouble_dqn = 1\n"),
            "c.toml:2:1: 'agent.double_dqn' must be true or false, not an integer");
  EXPECT_EQ(problem("[data]\nfile = 2024-01-01\n"), "c.toml:2:1: 'data.file' must be text, not a date or time");
  EXPECT_EQ(problem("[features]\nmacd = 12\n"),
            "c.toml:2:1: 'features.macd' must be a list of integers, not an integer");
  EXPECT_EQ(problem("agent = 3\n"), "c.toml:1:1: 'agent' is a section: write [agent] and its settings below");
  EXPECT_EQ(problem("[[folds]]\nonly = 1\n"), "c.toml:1:3: 'folds' is a section: write [folds] and its settings below");
}

TEST_F(ConfigFile, ValuesOutOfRangeAreRefused) {
  EXPECT_EQ(problem("[agent]\ngamma = 1.5\n"), "c.toml:2:1: 'agent.gamma' = 1.5 is out of range (0 ... 0.99999)");
  EXPECT_EQ(problem("[agent]\nvmin = nan\n"), "c.toml:2:1: 'agent.vmin' = nan is not finite");
  EXPECT_EQ(problem("[agent]\nvmax = -inf\n"), "c.toml:2:1: 'agent.vmax' = -inf is not finite");
  EXPECT_EQ(problem("[train]\nsteps = inf\n"), "c.toml:2:1: 'train.steps' must be an integer, not inf");
  EXPECT_EQ(problem("[agent]\ntarget = \"men\"\n"),
            "c.toml:2:1: 'agent.target' = \"men\" is none of mean, per_branch; did you mean 'mean'?");
  EXPECT_EQ(problem("[features]\nmacd = [12, 0, 9]\n"),
            "c.toml:2:1: 'features.macd' = [12, 0, 9] has 0, which is out of range (1 ... 100000)");
}

TEST_F(ConfigFile, SeveralProblemsAreReportedInTheOrderOfTheFile) {
  EXPECT_EQ(problem("[train]\nbatch = 0\n[agent]\ngama = 1\ngamma = 2\n"),
            "c.toml:2:1: 'train.batch' = 0 is out of range (1 ... 1000000)\n"
            "c.toml:4:1: unknown setting 'agent.gama'; did you mean 'agent.gamma'?\n"
            "c.toml:5:1: 'agent.gamma' = 2.0 is out of range (0 ... 0.99999)");
}

TEST_F(ConfigFile, RepeatedAndBrokenTextIsRefusedWithItsPlace) {
  EXPECT_EQ(problem("[agent]\ngamma = 0.9\ngamma = 0.8\n"), "c.toml:3:9: the same setting or section is given twice");
  EXPECT_EQ(problem("[agent]\ngamma = \n").substr(0, 12), "c.toml:2:9: ");
  EXPECT_EQ(error_of<InputError>([&] { read_config(path("none.toml")); }),
            "cannot read none.toml: No such file or directory");
  EXPECT_EQ(error_of<InputError>([&] { read_config(folder()); }), "cannot read " + folder() + ": Is a directory");
}

TEST_F(ConfigFile, CommandLineSettings) {
  Config config;
  apply_setting(config, "agent.gamma=.5");
  apply_setting(config, " run.device = cuda ");
  apply_setting(config, "data.file=2024-01-01.csv");
  apply_setting(config, "features.macd=[3, 5, 2]");
  apply_setting(config, "train.steps=2e6");
  apply_setting(config, "agent.double_dqn=false");
  EXPECT_EQ(config.agent.gamma, 0.5);
  EXPECT_EQ(config.run.device, "cuda");
  EXPECT_EQ(config.data.file, "2024-01-01.csv");
  EXPECT_EQ(config.features.macd, (std::vector<std::int64_t>{3, 5, 2}));
  EXPECT_EQ(config.train.steps, 2000000);
  EXPECT_FALSE(config.agent.double_dqn);
  apply_setting(config, "data.file=\"quoted\"");
  EXPECT_EQ(config.data.file, "quoted");
  apply_setting(config, "data.file=");
  EXPECT_EQ(config.data.file, "");

  EXPECT_EQ(set_problem("agent.gama=1"),
            "--set agent.gama=1: unknown setting 'agent.gama'; did you mean 'agent.gamma'?");
  EXPECT_EQ(set_problem("agent.gamma"), "--set agent.gamma: write name=value");
  EXPECT_EQ(set_problem("agent.gamma=high"), "--set agent.gamma=high: 'agent.gamma' must be a number, not text");
  EXPECT_EQ(set_problem("agent.gamma=2"), "--set agent.gamma=2: 'agent.gamma' = 2.0 is out of range (0 ... 0.99999)");
  EXPECT_EQ(set_problem("run.device=gpu"),
            "--set run.device=gpu: 'run.device' = \"gpu\" is none of default, serial, openmp, cuda");
  EXPECT_EQ(set_problem("agent.n_step=2\ntrain.steps=3"), "--set agent.n_step=2\ntrain.steps=3: more than one value");
}

/// Another valid value for each setting.
void perturb(Config& config) {
  int k = 0;
  visit_settings(config, [&](const char*, auto& field, const char*, const auto& limits) {
    using Field = std::decay_t<decltype(field)>;
    ++k;
    if constexpr (std::is_same_v<Field, bool>) {
      field = !field;
    } else if constexpr (std::is_same_v<Field, std::string>) {
      field = limits.empty() ? "a \"b\"\\c\n\x7f \xc3\xa9" : limits.back() == field ? limits.front() : limits.back();
    } else if constexpr (std::is_same_v<Field, double>) {
      // A value with all its digits, inside the bounds.
      const double share = 1.0 / (3 + k);
      field = limits.low > -1e299 ? limits.low + std::min(limits.high - limits.low, 1.0) * share : share;
    } else if constexpr (std::is_same_v<Field, std::int64_t>) {
      field += field < limits.high ? 1 : -1;
    } else {
      field.push_back(static_cast<typename Field::value_type>(777));
    }
  });
}

TEST_F(ConfigFile, WrittenConfigurationReadsBackEqual) {
  Config config;
  perturb(config);
  EXPECT_EQ(difference(config, Config{}), setting_names())
      << "every setting must differ for this test to mean anything";
  for (const Config& c : {Config{}, config}) {
    write("c.toml", to_toml(c));
    EXPECT_EQ(difference(read_config(path("c.toml")), c), std::vector<std::string>{});
  }
}

TEST_F(ConfigFile, DoublesKeepAllTheirBits) {
  for (const double value :
       {0.1, 1.0 / 3, 1e-300, 5e-324, -0.0, 123456789012345680.0, 1e22, -1e300, 0.99999999999999989}) {
    Config config;
    config.agent.vmin = value;
    write("c.toml", to_toml(config));
    const double back = read_config(path("c.toml")).agent.vmin;
    EXPECT_EQ(back, value);
    EXPECT_EQ(std::signbit(back), std::signbit(value));
  }
}

TEST_F(ConfigFile, HelpHasALineForEverySetting) {
  const std::string help = settings_help();
  std::size_t lines = 0;
  for (const char c : help) lines += c == '\n';
  EXPECT_EQ(lines, setting_names().size());
  const std::size_t at = help.find("agent.gamma ");
  ASSERT_NE(at, std::string::npos);
  const std::string line = help.substr(at, help.find('\n', at) - at);
  EXPECT_NE(line.find("number, 0 ... 0.99999"), std::string::npos) << line;
  EXPECT_NE(line.find(" 0.95 "), std::string::npos) << line;
  EXPECT_NE(line.find("discount a bar"), std::string::npos) << line;
  EXPECT_NE(help.find("error | first | last"), std::string::npos);
}

struct CrossCheck {
  const char* name;
  void (*change)(Config&);
  const char* message;
};

class CrossChecks : public testing::TestWithParam<CrossCheck> {};

TEST_P(CrossChecks, AreReported) {
  Config config;
  GetParam().change(config);
  try {
    check(config);
    FAIL() << "not refused";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), GetParam().message);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, CrossChecks,
    testing::Values(
        CrossCheck{"VminEqualsVmax", [](Config& c) { c.agent.vmin = c.agent.vmax = 2; },
                   "'agent.vmin' = 2 must be below 'agent.vmax' = 2 (both 0: from the rewards)"},
        CrossCheck{"VminAboveVmax", [](Config& c) { c.agent.vmin = 1; },
                   "'agent.vmin' = 1 must be below 'agent.vmax' = 0 (both 0: from the rewards)"},
        CrossCheck{"FoldBeyondCount", [](Config& c) { c.folds.only = 2; },
                   "'folds.only' = 2 must be at most 'folds.count' = 1"},
        CrossCheck{"SingleFoldOfMany", [](Config& c) { c.folds.count = 3; },
                   "'folds.count' = 3 needs 'folds.kind' = \"rolling\" or \"anchored\""},
        CrossCheck{"NoTrainingBars", [](Config& c) { c.folds.validation_fraction = c.folds.test_fraction = 0.5; },
                   "'folds.validation_fraction' = 0.5 and 'folds.test_fraction' = 0.5 leave no training bars"},
        CrossCheck{"ShortEmbargo", [](Config& c) { c.folds.embargo = 1; },
                   "'folds.embargo' = 1 must be 0 or at least 'agent.n_step' + 1 = 2"},
        CrossCheck{"ReplayBelowBatch", [](Config& c) { c.replay.rows = c.replay.learning_starts = 255; },
                   "'replay.rows' = 255 must be at least 'train.batch' = 256"},
        CrossCheck{"BatchOfPartialTiles", [](Config& c) { c.train.batch = 33; },
                   "'train.batch' = 33 must be a multiple of 16"},
        CrossCheck{"OddWidths",
                   [](Config& c) {
                     c.network.hidden1 = 20;
                     c.network.head_hidden = 1;
                   },
                   "'network.hidden1' = 20 must be a multiple of 8\n'network.head_hidden' = 1 must be a multiple of 8"},
        CrossCheck{"StartsAboveReplay", [](Config& c) { c.replay.learning_starts = 131073; },
                   "'replay.learning_starts' = 131073 must be at most 'replay.rows' = 131072"},
        CrossCheck{
            "ReplayShorterThanReturn",
            [](Config& c) {
              c.replay.rows = c.replay.learning_starts = 384;
              c.agent.n_step = 3;
            },
            "'replay.rows' = 384 must hold more than 'agent.n_step' = 3 rows of each of 'collect.envs' = 128 accounts"},
        CrossCheck{"StartsShorterThanReturn",
                   [](Config& c) {
                     c.replay.learning_starts = 256;
                     c.agent.n_step = 3;
                   },
                   "'replay.learning_starts' = 256 must hold 'agent.n_step' = 3 rows of each of 'collect.envs' = 128 "
                   "accounts"},
        CrossCheck{"WindowShorterThanReturn",
                   [](Config& c) {
                     c.collect.window = 5;
                     c.agent.n_step = 5;
                   },
                   "'collect.window' = 5 must be above 'agent.n_step' = 5"},
        CrossCheck{"PriorityBelowUnit",
                   [](Config& c) {
                     c.replay.alpha = 1;
                     c.replay.epsilon = 9.5e-7;
                   },
                   "'replay.epsilon' = 9.5e-07 to the power 'replay.alpha' = 1 is 9.5e-07, below the priority tree's "
                   "unit 2^-20 "
                   "= 9.54e-07: raise epsilon or lower alpha"},
        CrossCheck{"MacdOfTwo",
                   [](Config& c) {
                     c.features.macd = {12, 26};
                   },
                   "'features.macd' = [12, 26] needs three spans: fast, slow, signal"},
        CrossCheck{"MacdFastSlow",
                   [](Config& c) {
                     c.features.macd = {26, 26, 9};
                   },
                   "'features.macd' = [26, 26, 9] needs fast < slow"},
        CrossCheck{"RepeatedHorizon",
                   [](Config& c) {
                     c.features.return_horizons = {4, 1, 4, 4};
                   },
                   "'features.return_horizons' has 4 twice"},
        CrossCheck{"OutOfBounds", [](Config& c) { c.agent.gamma = -1; },
                   "'agent.gamma' = -1.0 is out of range (0 ... 0.99999)"},
        CrossCheck{"NotFinite", [](Config& c) { c.reward.scale = std::numeric_limits<double>::quiet_NaN(); },
                   "'reward.scale' = nan is not finite"},
        CrossCheck{"TwoAtOnce",
                   [](Config& c) {
                     c.folds.only = 2;
                     c.agent.vmin = 1;
                   },
                   "'agent.vmin' = 1 must be below 'agent.vmax' = 0 (both 0: from the rewards)\n"
                   "'folds.only' = 2 must be at most 'folds.count' = 1"}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(ConfigCheck, LimitsThatAreJustMetPass) {
  Config config;
  config.replay.alpha = 1;
  config.replay.epsilon = std::ldexp(1.0, -20);
  config.replay.rows = config.train.batch = 256;
  config.replay.learning_starts = 256;
  config.folds.embargo = 2;
  config.folds.only = config.folds.count;
  EXPECT_NO_THROW(check(config));
}

TEST(ChangedSettings, AreListedWithTheirValues) {
  Config config;
  EXPECT_TRUE(changed_settings(config).empty());
  config.data.file = "a b.csv";
  config.agent.gamma = 0.5;
  config.features.macd = {3, 6, 2};
  EXPECT_EQ(changed_settings(config),
            (std::vector<std::string>{"data.file = \"a b.csv\"", "features.macd = [3, 6, 2]", "agent.gamma = 0.5"}));
}

TEST(NearestName, OfEditsAndOfNothing) {
  EXPECT_EQ(nearest_name("trian", {"train", "run"}), "train");
  EXPECT_EQ(nearest_name("zzzzz", {"train", "run"}), "");
  EXPECT_EQ(nearest_name("learning_rat", {"optimiser.learning_rate"}), "optimiser.learning_rate");
}

}  // namespace
}  // namespace vulpes::io
