#include "kernels/device/field_loss.hpp"

#include "kernels/device/elementwise.hpp"
#include "kernels/device/field_pair.hpp"
#include "kernels/device/single.hpp"
#include "kernels/device/spaces.hpp"

#include <algorithm>

namespace garonne::kernels::device {

namespace {

constexpr int slice_groups = 8;
constexpr double relative_epsilon = 1e-8;

struct Norms {
  double error = 0;
  double wanted = 0;
  double weights = 0;
};

KOKKOS_INLINE_FUNCTION double loss_of(const Norms& norms, bool relative) {
  if (!relative) return norms.weights == 0 ? 0 : norms.error / norms.weights;
  return Kokkos::sqrt(norms.error) / (Kokkos::sqrt(norms.wanted) + relative_epsilon);
}

// Twice the derivative of a group's loss by the square of its error.
KOKKOS_INLINE_FUNCTION double slope_of(const Norms& norms, bool relative) {
  if (!relative) return norms.weights == 0 ? 0 : 2 / norms.weights;
  if (norms.error == 0) return 0;
  return 1 / (Kokkos::sqrt(norms.error) * (Kokkos::sqrt(norms.wanted) + relative_epsilon));
}

// Norms of some groups in parts: [groups][slices][3].
struct Slices {
  double* parts;
  std::int64_t first_group;
  std::int64_t groups;
  std::int64_t slices;

  KOKKOS_FUNCTION Norms norms_of(std::int64_t group) const {
    Norms norms;
    for (std::int64_t slice = 0; slice < slices; ++slice) {
      const double* const own = parts + ((group - first_group) * slices + slice) * 3;
      norms.error += own[0];
      norms.wanted += own[1];
      norms.weights += own[2];
    }
    return norms;
  }
};

// A team has a slice of the points of all pairs of a group.
template <typename T>
struct SumSlices {
  FieldsOnDevice<T> fields;
  Slices slices;

  KOKKOS_FUNCTION void add(const PairOnDevice<T>& pair, std::int64_t point, Norms& norms) const {
    if (fields.runs.has(point)) {
      norms.error += pair.weight(point) * pair.term(point);
      if (fields.relative) {
        const double wanted = pair.wanted(point);
        norms.wanted += wanted * wanted;
      }
      if (fields.mask != nullptr && pair.there(point)) norms.weights += pair.weight(point);
    }
    for (std::int64_t axis = 0; axis < fields.axes; ++axis) {
      const double of_error = pair.difference(fields.differences[axis], true, point);
      const double of_wanted = pair.difference(fields.differences[axis], false, point);
      norms.error += of_error * of_error;
      norms.wanted += of_wanted * of_wanted;
    }
  }

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    double* const parts = team.template shared<double>(3 * Team::threads + Team::groups);
    double* const sums = parts + 3 * Team::threads;
    const std::int64_t group = slices.first_group + index / slices.slices;
    const std::int64_t slice = index % slices.slices;
    const std::int64_t first = fields.points * slice / slices.slices;
    const std::int64_t last = fields.points * (slice + 1) / slices.slices;
    team.each(Team::threads, [&](int thread) {
      Norms norms;
      for (std::int64_t p = 0; p < fields.pairs_in_group; ++p) {
        const PairOnDevice<T> pair(fields, group * fields.pairs_in_group + p);
        for (std::int64_t point = first + thread; point < last; point += Team::threads)
          add(pair, point, norms);
      }
      parts[thread] = norms.error;
      parts[Team::threads + thread] = norms.wanted;
      parts[2 * Team::threads + thread] = norms.weights;
    });
    team.wait();
    for (int which = 0; which < 3; ++which) {
      double total = team.template sum<double>(
          sums, [&](int thread) { return parts[which * Team::threads + thread]; });
      if (which == 2 && fields.mask == nullptr && slice == 0)
        total = static_cast<double>(fields.pairs_in_group) * fields.counted;
      team.each(1, [&](int) { slices.parts[index * 3 + which] = total; });
    }
  }
};

struct WriteNorms {
  Slices slices;
  double* norms;  // [3, groups]
  std::int64_t groups;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t i) const {
    const std::int64_t group = slices.first_group + i;
    const Norms sums = slices.norms_of(group);
    norms[group] = sums.error;
    norms[groups + group] = sums.wanted;
    norms[2 * groups + group] = sums.weights;
  }
};

// The losses of some groups added to those of the ones before; at the end over how many they are.
template <typename Source>
struct AddLosses {
  Source source;  // with norms_of(group)
  std::int64_t first_group;
  std::int64_t count;
  bool relative;
  double* running;
  double* loss;  // null before the end
  std::int64_t groups;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t) const {
    double* const sums = team.template shared<double>(Team::groups);
    const double total = team.template sum_of<double>(sums, count, [&](std::int64_t i) {
      return loss_of(source.norms_of(first_group + i), relative);
    });
    team.each(1, [&](int) {
      const double all = first_group == 0 ? total : *running + total;
      *running = all;
      if (loss != nullptr) *loss = all / static_cast<double>(groups);
    });
  }
};

// Slopes of groups: given, or from their norms.
struct Slopes {
  const double* gradient_errors;  // null: from the norms
  Slices slices;
  Scalar outer;
  double groups;
  bool relative;

  KOKKOS_FUNCTION double of_group(std::int64_t group) const {
    if (gradient_errors != nullptr) return 2 * gradient_errors[group];
    return value_of(outer) / groups * slope_of(slices.norms_of(group), relative);
  }
};

template <typename T>
struct WriteGradient {
  FieldsOnDevice<T> fields;
  Slopes slopes;
  std::int64_t first_pair;
  T* gradient;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t i) const {
    const std::int64_t number = first_pair + i / (fields.members * fields.points);
    const std::int64_t member = i / fields.points % fields.members;
    const std::int64_t point = i % fields.points;
    const PairOnDevice<T> pair(fields, number);
    const double slope = slopes.of_group(number / fields.pairs_in_group);
    const bool counts = fields.axes > 0 || fields.runs.has(point);
    double value = 0;
    if (fields.axes > 0) {
      value = pair.error(point);
      for (std::int64_t axis = 0; axis < fields.axes; ++axis)
        value = pair.transposed_differences(fields.differences[axis], value, point);
    } else if (counts) {
      value = pair.weight(point) * pair.half_slope(point, member);
    }
    store_double(gradient[pair.place(point, member)],
                 counts && pair.there(point) ? slope * pair.scale(point) * value : 0.0);
  }
};

// use(space, fields, slices) for groups in turn, as many at once as the scratch has room for, with
// the sums of their slices in it.
template <typename Use>
void for_summed_groups(const Place& place, const FieldComparison& comparison, const Use& use) {
  with_type_and_space(place, comparison.type, [&]<typename T>(T, const auto& space) {
    const FieldsOnDevice<T> fields(comparison);
    const std::int64_t slices = std::clamp<std::int64_t>(comparison.points / 4096, 1, 32);
    const std::int64_t at_once = (scratch_doubles - 1) / (3 * slices);  // the last is a sum
    for (std::int64_t first = 0; first < comparison.groups(); first += at_once) {
      const Slices some{place.scratch, first, std::min(at_once, comparison.groups() - first),
                        slices};
      for_teams<slice_groups>(
          space, some.groups * slices,
          shared_bytes<double>(3 * slice_groups * lanes_of_group + slice_groups),
          SumSlices<T>{fields, some});
      use(space, fields, some);
    }
  });
}

template <typename T, typename Space>
void write_gradient(const Space& space, const FieldsOnDevice<T>& fields, const Slopes& slopes,
                    std::int64_t first_group, std::int64_t groups, void* gradient) {
  elementwise<1>(space, groups * fields.pairs_in_group * fields.members * fields.points,
                 WriteGradient<T>{fields, slopes, first_group * fields.pairs_in_group,
                                  static_cast<T*>(gradient)});
}

// The norms of the members, added in their order.
struct Members {
  const double* norms;
  std::int64_t members;
  std::int64_t groups;

  KOKKOS_FUNCTION Norms norms_of(std::int64_t group) const {
    Norms all;
    for (std::int64_t member = 0; member < members; ++member) {
      const double* const sums = norms + 3 * member * groups + group;
      all.error += sums[0];
      all.wanted += sums[groups];
      all.weights += sums[2 * groups];
    }
    return all;
  }
};

struct GatheredGradient {
  Members members;
  Scalar outer;
  bool relative;
  double* gradient;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t group) const {
    const std::int64_t groups = members.groups;
    const double by_error = value_of(outer) / static_cast<double>(groups) *
                            slope_of(members.norms_of(group), relative) / 2;
    for (std::int64_t member = 0; member < members.members; ++member) {
      double* const out = gradient + 3 * member * groups + group;
      out[0] = by_error;
      out[groups] = 0;
      out[2 * groups] = 0;
    }
  }
};

}  // namespace

void field_norms(const Place& place, const FieldComparison& fields, double* norms) {
  for_summed_groups(place, fields, [&](const auto& space, const auto&, const Slices& slices) {
    elementwise<1>(space, slices.groups, WriteNorms{slices, norms, fields.groups()});
  });
}

void field_norms_gradient(const Place& place, const FieldComparison& fields,
                          const double* gradient_errors, void* gradient_prediction) {
  with_type_and_space(place, fields.type, [&]<typename T>(T, const auto& space) {
    write_gradient(space, FieldsOnDevice<T>(fields),
                   Slopes{gradient_errors, {}, {}, 0, fields.relative}, 0, fields.groups(),
                   gradient_prediction);
  });
}

void field_loss(const Place& place, const FieldComparison& fields, double* loss) {
  for_summed_groups(place, fields, [&](const auto& space, const auto&, const Slices& slices) {
    const bool ends = slices.first_group + slices.groups == fields.groups();
    for_teams<slice_groups>(space, 1, shared_bytes<double>(slice_groups),
                            AddLosses<Slices>{slices, slices.first_group, slices.groups,
                                              fields.relative, place.scratch + scratch_doubles - 1,
                                              ends ? loss : nullptr, fields.groups()});
  });
}

void field_loss_gradient(const Place& place, const FieldComparison& fields, const Scalar& outer,
                         void* gradient_prediction) {
  for_summed_groups(place, fields,
                    [&](const auto& space, const auto& on_device, const Slices& slices) {
                      const Slopes slopes{nullptr, slices, outer,
                                          static_cast<double>(fields.groups()), fields.relative};
                      write_gradient(space, on_device, slopes, slices.first_group, slices.groups,
                                     gradient_prediction);
                    });
}

void gathered_field_loss(const Place& place, const GatheredNorms& gathered, double* loss) {
  with_space(place, [&](const auto& space) {
    for_teams<slice_groups>(space, 1, shared_bytes<double>(slice_groups),
                            AddLosses<Members>{{gathered.norms, gathered.members, gathered.groups},
                                               0,
                                               gathered.groups,
                                               gathered.relative,
                                               place.scratch,
                                               loss,
                                               gathered.groups});
  });
}

void gathered_field_loss_gradient(const Place& place, const GatheredNorms& gathered,
                                  const Scalar& outer, double* gradient_norms) {
  with_space(place, [&](const auto& space) {
    elementwise<1>(space, gathered.groups,
                   GatheredGradient{{gathered.norms, gathered.members, gathered.groups},
                                    outer,
                                    gathered.relative,
                                    gradient_norms});
  });
}

}  // namespace garonne::kernels::device
