#include "lib/timeline/drift.h"

#include <cmath>
#include <limits>

#include "lib/digest/elements.h"

namespace ddp_doctor {

std::vector<double> to_doubles(std::span<const std::uint8_t> bytes, DType dtype) {
  const std::size_t size = element_size(dtype);
  std::vector<double> values(bytes.size() / size);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = as_double(bytes.data() + i * size, dtype);
  return values;
}

double max_abs_difference(const std::vector<std::vector<double>>& replicas) {
  double largest = 0.0;
  for (std::size_t i = 0; i < replicas.front().size(); ++i) {
    double low = replicas.front()[i];
    double high = low;
    std::size_t nans = 0;
    for (const auto& replica : replicas) {
      if (std::isnan(replica[i])) ++nans;
      low = std::fmin(low, replica[i]);
      high = std::fmax(high, replica[i]);
    }
    if (nans == replicas.size()) continue;
    if (nans > 0) return std::numeric_limits<double>::quiet_NaN();
    if (low == high) continue;  // also equal infinities, whose difference would be NaN
    largest = std::fmax(largest, high - low);
  }
  return largest;
}

}  // namespace ddp_doctor
