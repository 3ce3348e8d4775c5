#include "temporary_folder.hpp"
#include "vulpes/core/errors.hpp"
#include "vulpes/io/table.hpp"

namespace vulpes::io {
namespace {

class TableWithoutArrow : public TemporaryFolder {};

TEST_F(TableWithoutArrow, ImportSaysWhatIsMissing) {
  EXPECT_EQ(error_of<InputError>([] { read_bars_table("bars.csv"); }),
            "cannot read bars.csv: this build has no CSV and Parquet import; build with VULPES_ENABLE_ARROW=ON");
  EXPECT_EQ(error_of<InputError>([] { write_parquet({}, "bars.parquet"); }),
            "cannot write bars.parquet: this build has no CSV and Parquet import; build with VULPES_ENABLE_ARROW=ON");
}

}  // namespace
}  // namespace vulpes::io
