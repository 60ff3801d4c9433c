// The curve of a link's rate by size, from what was measured.
#pragma once

#include <vector>

#include "dist/link_measurement.hpp"
#include "plan/model/cluster.hpp"

namespace garonne::train {

// Beside a latency, as plan::Link has it: a point a size, from all messages and all-reduces of that
// size, the median of what each says. Small messages that pass faster than large ones, as within
// the burst of a limited link, have the rate of these, since no curve falls with size. Empty where
// `fit` is off by less than 1 % in the median, or the curve by more than nine tenths of that.
plan::RateCurve link_curve(const std::vector<dist::LinkSeries>& series, const dist::LinkFit& fit);

// |predicted - measured| / measured with the curve in the place of the fit's rate, in the median of
// all samples.
double curve_error(const plan::RateCurve& curve, const std::vector<dist::LinkSeries>& series,
                   double latency_seconds);

}  // namespace garonne::train
