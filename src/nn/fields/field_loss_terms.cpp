#include "nn/fields/field_loss_terms.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "base/sphere_grid.hpp"
#include "nn/element_type.hpp"

namespace garonne::nn {

namespace {

// There is one target in a model.
constexpr const char* deviation_table = "target deviation";
constexpr const char* mean_table = "target mean";
constexpr const char* area_table = "areas of rows";

const std::vector<std::pair<std::string, FieldLossForm>>& forms() {
  static const std::vector<std::pair<std::string, FieldLossForm>> registry = {
      {"relative-l2", {true, false, false, false}},
      {"relative-l2-channels", {true, true, false, false}},
      {"h1", {true, true, false, true}},
      {"squared-l2", {}},
      {"area-l2", {false, false, true, false}},
      {"crps", {.area = true, .ensemble = true}},
  };
  return registry;
}

}  // namespace

std::vector<std::string> field_losses() {
  std::vector<std::string> names;
  for (const auto& [name, form] : forms()) names.push_back(name);
  return names;
}

FieldLossForm FieldLossTerms::form(const std::string& loss) {
  if (loss == "auto") return forms().front().second;
  for (const auto& [name, form] : forms()) {
    if (name == loss) return form;
  }
  const std::vector<std::string> names = field_losses();
  throw ConfigError("train.loss", loss,
                    fmt::format("is no loss of fields; give {} or {}",
                                fmt::join(names.begin(), names.end() - 1, ", "), names.back()));
}

FieldLossTerms::FieldLossTerms(const std::string& loss, const FieldShape& shape, std::int64_t batch,
                               std::int64_t step)
    : name_(loss),
      form_(form(loss)),
      shape_(shape),
      batch_(batch),
      step_(step),
      points_(shape.count()),
      channels_(shape.target_channels) {
  check_members();
  check_tables();
  const std::int64_t in_row = points_ / shape.points[0];
  for (std::int64_t slot = 0; slot < shape.points[0]; ++slot) {
    if (shape.rows.row(slot) == FieldRows::none) continue;
    if (runs_.empty() || runs_.back().first + runs_.back().count != slot * in_row)
      runs_.push_back({slot * in_row, 0});
    runs_.back().count += in_row;
  }
  if (!form_.differences) return;
  expect(!shape.rows.cut(), "differences between rows are of whole fields");
  std::int64_t before = 1;
  for (std::size_t axis = 0; axis < shape.points.size(); ++axis) {
    const std::int64_t count = shape.points[axis];
    const bool longitude = axis + 1 == shape.points.size();
    const bool periodic = shape.grid == "periodic" || (longitude && is_sphere_grid(shape.grid));
    if (count < (periodic ? 2 : 4)) {
      throw ConfigError("train.loss", loss,
                        fmt::format("wants at least {} points along every axis; there are {}",
                                    periodic ? 2 : 4, fmt::join(shape.points, " x ")));
    }
    differences_.push_back({before, count, points_ / (before * count), periodic});
    before *= count;
  }
}

std::string FieldLossTerms::key() const {
  const std::string mask =
      shape_.masked ? fmt::format(" mask of {}", shape_.push_forward + shape_.rollout) : "";
  const std::string members =
      form_.ensemble ? fmt::format(" members {}", shape_.members) : std::string();
  return fmt::format("{} {}x{}x{} of {} {} decode {}{}{}", name_, batch_,
                     fmt::join(shape_.points, "x"), channels_, shape_.rollout, shape_.grid,
                     shape_.target_deviation.size(), mask, members);
}

at::Tensor FieldLossTerms::make_scratch(const at::Tensor& like) const {
  return at::empty({scratch_elements()}, like.options().dtype(at::kDouble));
}

double FieldLossTerms::operations() const {
  double each = form_.differences ? 10.0 + 12.0 * static_cast<double>(differences_.size()) : 8.0;
  // Every member is compared with every other.
  const auto members = static_cast<double>(shape_.members);
  if (form_.ensemble) each = members * (4.0 + 2.0 * members);
  return each * static_cast<double>(batch_ * points_ * channels_);
}

std::vector<ConstantTable> FieldLossTerms::tables() const {
  std::vector<ConstantTable> tables;
  const auto add = [&](const char* name, const std::vector<double>& values) {
    if (values.empty()) return;
    tables.push_back(
        {name, static_cast<std::int64_t>(8 * values.size()), [&values] { return values.data(); }});
  };
  add(deviation_table, shape_.target_deviation);
  add(mean_table, shape_.target_mean);
  if (form_.area) add(area_table, shape_.area_weights);
  return tables;
}

kernels::FieldComparison FieldLossTerms::comparison(const Context& context,
                                                    const std::vector<at::Tensor>& inputs,
                                                    const at::Tensor& scratch) const {
  // Copies are the state's, which keeps them for longer than a step.
  const auto copy_of = [&](const char* name, const std::vector<double>& values) {
    if (values.empty()) return at::Tensor();
    const at::Tensor copy = context.table(name, static_cast<std::int64_t>(8 * values.size()));
    return copy.defined() ? copy.view(at::kDouble) : copy;
  };
  const auto on_host = [](const std::vector<double>& values) {
    return values.empty() ? nullptr : values.data();
  };
  const at::Tensor deviation = copy_of(deviation_table, shape_.target_deviation);
  const at::Tensor mean = copy_of(mean_table, shape_.target_mean);
  const std::vector<double> no_areas;
  const std::vector<double>& area_weights = form_.area ? shape_.area_weights : no_areas;
  const at::Tensor areas = copy_of(area_table, area_weights);
  return kernels::FieldComparison{
      .type = element_type_of(inputs[0]),
      .prediction = inputs[0].const_data_ptr(),
      .target = inputs[1].const_data_ptr(),
      .target_step = step_,
      .mask = shape_.masked ? inputs[2].const_data_ptr() : nullptr,
      .mask_step = shape_.push_forward + step_,
      .batch = batch_,
      .members = shape_.members,
      .points = points_,
      .channels = channels_,
      .deviation = deviation.defined() ? deviation.const_data_ptr<double>()
                                       : on_host(shape_.target_deviation),
      .mean = mean.defined() ? mean.const_data_ptr<double>() : on_host(shape_.target_mean),
      .decodes_by_point = static_cast<std::int64_t>(shape_.target_deviation.size()) > channels_,
      .runs = runs_,
      .row_weights = areas.defined() ? areas.const_data_ptr<double>() : on_host(area_weights),
      .points_in_row = points_ / shape_.points[0],
      .differences = differences_,
      .scratch = form_.differences ? scratch.data_ptr<double>() : nullptr,
      .pairs_in_group = pairs_in_group(),
      .relative = form_.relative};
}

kernels::GatheredNorms FieldLossTerms::gathered(const at::Tensor& norms) const {
  return kernels::GatheredNorms{norms.const_data_ptr<double>(), norms.size(0), groups(),
                                form_.relative};
}

void FieldLossTerms::check_members() const {
  const std::string members = fmt::format("{}", shape_.members);
  if (!form_.ensemble && shape_.members > 1) {
    throw ConfigError("train.members", members,
                      fmt::format("has no meaning for train.loss = {}, which is of one forecast; "
                                  "leave it out, or give train.loss = crps",
                                  name_));
  }
  if (form_.ensemble && shape_.members < 2) {
    throw ConfigError("train.members", members,
                      "is no ensemble, and train.loss = crps is of one; give 2 or more");
  }
  if (form_.ensemble && shape_.noise <= 0) {
    throw ConfigError("train.noise", fmt::format("{}", shape_.noise),
                      "makes all members of train.loss = crps the same; give more than 0, in "
                      "deviations of the inputs");
  }
}

void FieldLossTerms::check_tables() const {
  const auto channels = static_cast<std::size_t>(channels_);
  const auto all = channels * static_cast<std::size_t>(points_);
  const auto fits = [&](const std::vector<double>& table) {
    return table.empty() || table.size() == channels || table.size() == all;
  };
  expect(fits(shape_.target_mean) && fits(shape_.target_deviation) &&
             (shape_.target_mean.empty() ||
              shape_.target_mean.size() == shape_.target_deviation.size()),
         "statistics of the target are by channel, or by channel and point, both alike");
  expect(shape_.area_weights.empty() ||
             shape_.area_weights.size() == static_cast<std::size_t>(shape_.points[0]),
         "area weights are one a row");
}

}  // namespace garonne::nn
