#include "vulpes/evaluator/stitch.hpp"

#include <cmath>

namespace vulpes::evaluator {
namespace {

void append(Performance& all, const WalkResult& walk) {
  if (all.equity.empty()) all.equity.push_back(walk.start_equity);
  const double scale = all.equity.back() / walk.start_equity;
  TradeBook book;
  double cash = walk.start_equity, price = 0;
  std::int64_t bar = 0;
  for (const kernels::BacktestRecord& record : walk.records) {
    bar = static_cast<std::int64_t>(all.exposure.size());
    if (record.fill_units != 0.0) {
      book.fill(bar, record.fill_units, record.fill_price, record.fee);
      cash -= record.fill_units * record.fill_price + record.fee;
    }
    if (book.units() != 0.0) {
      price = (record.equity - cash) / book.units();
      if (record.exposure == 0.0) book.fill(bar, -book.units(), price, 0.0);  // ruin: closed without a fill
    }
    all.equity.push_back(record.equity * scale);
    all.exposure.push_back(record.exposure);
    all.fees.push_back(record.fee * scale);
    all.traded_notional.push_back(std::fabs(record.fill_units) * record.fill_price * scale);
  }
  for (Trade trade : book.trades(bar, price)) {
    trade.profit *= scale;
    all.trades.push_back(trade);
  }
}

}  // namespace

Performance stitch(const std::vector<WalkResult>& walks, double bars_a_year) {
  Performance all;
  all.bars_a_year = bars_a_year;
  for (const WalkResult& walk : walks) append(all, walk);
  return all;
}

}  // namespace vulpes::evaluator
