// Nodes of fields as GPUs run and plan them: what needs no kernel of one runs on processors, too.
#include "nn/fields/field_layers.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "nn/element_type.hpp"
#include "nn/gemm/product.hpp"
#include "nn/precisions.hpp"
#include "nn/spectral/sphere_contraction.hpp"
#include "nn/spectral/sphere_layers.hpp"

namespace garonne::nn {
namespace {

Declaration fields_on_gpu(Precision precision) {
  Declaration declaration;
  declaration.precision = precision;
  declaration.device = {DeviceKind::Cuda, 90, 132};
  declaration.granularity = declaration.device.granularity();
  return declaration;
}

at::Tensor random(std::vector<std::int64_t> shape, at::ScalarType type) {
  return at::randn(shape, at::kDouble).to(type);
}

struct Lifted {
  at::Tensor output;
  at::Tensor weight_gradient;
};

Lifted lift(const Node& node, Precision precision, std::int64_t rows, std::int64_t inputs,
            const DeviceTables* tables) {
  const at::NoGradGuard no_gradients;
  at::manual_seed(4);
  const Products products;
  const std::vector<std::int64_t> samples = {3, 4};
  Context context;
  context.precision = precision;
  context.products = &products;
  context.samples = samples.data();
  context.batch = 2;
  context.tables = tables;
  const auto type = compute_scalar_type(precision);
  constexpr std::int64_t outputs = 5;
  const at::Tensor x = random({rows, inputs}, type);
  const at::Tensor weight = random({outputs, inputs + 2}, type);
  Lifted made;
  made.output = node.forward(context, {x}, {weight}, nullptr);
  made.weight_gradient = at::empty({weight.numel()}, state_scalar_type(precision));
  BackwardArguments arguments;
  arguments.inputs = {x};
  arguments.output_gradient = random({rows, outputs}, type);
  arguments.parameters = {weight};
  arguments.parameter_gradients = {{made.weight_gradient, false}};
  arguments.wanted = {false};
  static_cast<void>(node.backward(context, arguments));
  return made;
}

// Point by point as it is said in the header.
TEST(FieldLift, CoordinatesOfATableHaveTheBitsOfThoseThatAreWritten) {
  FieldWindow window;
  window.values = {0};
  window.parts = {{.source = 0, .source_channels = 3, .channels = 3}};
  for (const bool cut : {false, true}) {
    for (const Coordinates coordinates : {Coordinates::Periodic, Coordinates::Inclusive}) {
      FieldShape shape;
      shape.points = {7, 6};
      // Two more rows come after those of the field, and have none.
      if (cut) {
        shape.rows = run_of_rows(19, 21, {2, 3});
        ASSERT_EQ(shape.rows.slots.size(), 7U);
        ASSERT_EQ(shape.rows.present(), 5);
      }
      const auto node = make_field_lift(shape, 2, window, coordinates, 5, /*bias=*/false);
      for (const Precision precision : precisions) {
        const std::vector<ConstantTable> constants = node->tables(precision);
        ASSERT_EQ(constants.size(), 1U);
        const ConstantTable& constant = constants.front();
        EXPECT_EQ(constant.bytes, 8 * (7 + 6));
        const auto* const places = static_cast<const double*>(constant.on_host());
        const std::int64_t whole = cut ? 19 : 7;
        const double steps =
            static_cast<double>(coordinates == Coordinates::Periodic ? whole : whole - 1);
        EXPECT_EQ(places[0], cut ? 14 / steps : 0);
        EXPECT_EQ(places[4], (cut ? 18 : 4) / steps);
        EXPECT_EQ(places[8], 1 / (coordinates == Coordinates::Periodic ? 6.0 : 5.0));
        at::Tensor copy = at::empty({constant.bytes}, at::kByte);
        copy.copy_(at::from_blob(const_cast<double*>(places), {constant.bytes}, at::kByte));
        DeviceTables tables = {{constant.name, copy}};
        const Lifted written = lift(*node, precision, 2 * 42, 3, nullptr);
        const Lifted read = lift(*node, precision, 2 * 42, 3, &tables);
        EXPECT_TRUE(at::equal(written.output, read.output));
        EXPECT_TRUE(at::equal(written.weight_gradient, read.weight_gradient));
        copy.view(at::kDouble).add_(0.5);
        EXPECT_FALSE(at::equal(written.output, lift(*node, precision, 2 * 42, 3, &tables).output));
      }
    }
  }
}

// Another kind of coordinates, or another part of a cut field's size, is another table.
TEST(FieldLift, TablesOfUnequalCoordinatesHaveNamesOfTheirOwn) {
  FieldWindow window;
  window.values = {0};
  window.parts = {{.source = 0, .source_channels = 1, .channels = 1}};
  const auto name = [&](const FieldShape& shape, Coordinates coordinates) {
    return make_field_lift(shape, 1, window, coordinates, 2)->tables(Precision::Float32)[0].name;
  };
  FieldShape shape;
  shape.points = {7, 6};
  FieldShape part = shape;
  part.rows = run_of_rows(21, 21, {0, 3});
  FieldShape other_part = shape;
  other_part.rows = run_of_rows(21, 21, {1, 3});
  EXPECT_NE(name(shape, Coordinates::Periodic), name(shape, Coordinates::Inclusive));
  EXPECT_NE(name(shape, Coordinates::Periodic), name(part, Coordinates::Periodic));
  EXPECT_EQ(name(part, Coordinates::Periodic), name(other_part, Coordinates::Periodic))
      << "members of a group run the same Program";
  EXPECT_TRUE(
      make_field_lift(shape, 1, window, Coordinates::None, 2)->tables(Precision::Float32).empty());
}

// At 721 x 1440 points pieces of a processor's cache would be thousands of kernels.
TEST(GatedAdd, OnAGpuProductsTakeWhatTheGradientTakesAndFewKernels) {
  constexpr std::int64_t rows = 721 * 1440;
  constexpr std::int64_t channels = 64;
  const auto node = make_gated_add(rows, channels);
  for (const Precision precision : {Precision::Float32, Precision::Float64}) {
    const plan::NodeSpec spec = node->declare(fields_on_gpu(precision));
    EXPECT_EQ(spec.backward.transient_bytes, 0);
    EXPECT_EQ(spec.backward.kernels, 3);
  }
  const plan::NodeSpec half = node->declare(fields_on_gpu(Precision::BFloat16));
  // Three pieces in float32 of a sixth of the rows.
  const std::int64_t piece = round_up((rows + 5) / 6 * channels * 4, cuda_allocation_granularity);
  EXPECT_EQ(half.backward.transient_bytes, 3 * piece - rows * channels * 2);
  EXPECT_LE(half.backward.transient_bytes, 2048);
  EXPECT_EQ(half.backward.kernels, 6 * 4 + 1);
  // Those of a processor are in its cache, whatever the field.
  Declaration processor;
  processor.precision = Precision::BFloat16;
  EXPECT_EQ(node->declare(processor).backward.transient_bytes, 0);
  EXPECT_EQ(node->declare(processor).backward.kernels, 1);
  // A small field is one piece on both, and has the same bits.
  const auto small = make_gated_add(100, 12);
  processor.granularity = cuda_allocation_granularity;
  EXPECT_EQ(small->declare(fields_on_gpu(Precision::BFloat16)).backward.transient_bytes,
            small->declare(processor).backward.transient_bytes);
}

struct Contracted {
  at::Tensor output;
  at::Tensor input_gradient;
  at::Tensor weight_gradient;
};

Contracted contract(const Node& node, DeviceKind device, Precision precision,
                    const std::vector<std::int64_t>& sizes, std::int64_t matrices,
                    bool accumulate) {
  const at::NoGradGuard no_gradients;
  at::manual_seed(5);
  Context context;
  context.precision = precision;
  context.queue.device = device;
  const auto type = state_scalar_type(precision);
  const std::int64_t rows = sizes[0], batch = sizes[1], inputs = sizes[2], outputs = sizes[3];
  const at::Tensor x = random({rows, batch, inputs, 2}, type);
  const at::Tensor weight = random({matrices, inputs, outputs, 2}, compute_scalar_type(precision));
  Contracted made;
  made.output = node.forward(context, {x}, {weight}, nullptr);
  // At an odd place, as behind a parameter of one number.
  made.weight_gradient = at::full({weight.numel() + 1}, 0.25, at::TensorOptions().dtype(type))
                             .narrow(0, 1, weight.numel());
  BackwardArguments arguments;
  arguments.inputs = {x};
  arguments.output_gradient = random({rows, batch, outputs, 2}, type);
  arguments.parameters = {weight};
  arguments.parameter_gradients = {{made.weight_gradient, accumulate}};
  arguments.wanted = {true};
  made.input_gradient = node.backward(context, arguments)[0];
  return made;
}

TEST(SphereContraction, OnAGpuManyGroupsAreConvertedAtOnceAndThoseOfOneRowMultiplied) {
  struct Case {
    std::int64_t degrees, batch, inputs, outputs;
    int members;
    SphereWeights weights = SphereWeights::ByDegreeAndOrder;
  };
  // The second: 12 at once, of 21 rows, so that the last product has fewer; the last: 3 at once.
  for (const Case& one :
       {Case{5, 3, 4, 6, 1}, Case{6, 2, 1000, 699, 1}, Case{5, 1, 3, 2, 2}, Case{4, 2, 1, 1, 1},
        Case{5, 3, 4, 6, 1, SphereWeights::ByDegree}, Case{5, 1, 3, 2, 2, SphereWeights::ByDegree},
        Case{5, 2, 2000, 1300, 1, SphereWeights::ByDegree}}) {
    const kernels::SphereShape shape{8, 16, one.degrees, one.degrees};
    const SphereGroups groups = sphere_groups(shape, one.weights, {one.members - 1, one.members});
    const auto node = make_sphere_contraction(groups, one.batch, one.inputs, one.outputs);
    const std::vector<std::int64_t> sizes = {groups.rows, one.batch, one.inputs, one.outputs};
    for (const Precision precision : precisions) {
      for (const bool accumulate : {false, true}) {
        if (one.inputs > 100 && (precision != Precision::Float32 || !accumulate)) continue;
        SCOPED_TRACE(groups.text + " " + precision_name(precision));
        const auto run = [&](DeviceKind device) {
          return contract(*node, device, precision, sizes, groups.weights, accumulate);
        };
        const Contracted wanted = run(DeviceKind::Cpu);
        const Contracted made = run(DeviceKind::Cuda);
        const double tolerance = precision == Precision::Float64 ? 1e-13 : 1e-5;
        for (const auto part :
             {&Contracted::output, &Contracted::input_gradient, &Contracted::weight_gradient}) {
          const at::Tensor& got = made.*part;
          ASSERT_EQ(got.sizes(), (wanted.*part).sizes());
          EXPECT_LE((got - wanted.*part).norm().item<double>(),
                    tolerance * (wanted.*part).norm().item<double>());
        }
      }
    }
  }
}

TEST(SphereContraction, OnAGpuHasAProductOfSoManyGroups) {
  const kernels::SphereShape shape{240, 480, 240, 240};
  const SphereGroups diagonal = sphere_groups(shape, SphereWeights::ByDegreeAndOrder);
  ASSERT_EQ(diagonal.weights, 240 * 241 / 2);
  const auto of = [&](const SphereGroups& groups, const Declaration& declaration) {
    return make_sphere_contraction(groups, 1, 384, 384)->declare(declaration);
  };
  constexpr std::int64_t matrix_bytes = 2 * 384 * 384 * 4;
  const plan::NodeSpec together = of(diagonal, fields_on_gpu(Precision::BFloat16));
  EXPECT_EQ(together.forward.transient_bytes, 56 * matrix_bytes);
  EXPECT_LE(together.forward.transient_bytes, std::int64_t{64} << 20);
  EXPECT_EQ(together.backward_weight.transient_bytes, 56 * matrix_bytes);
  EXPECT_EQ(together.forward.kernels, 2 * ((240 * 241 / 2 + 55) / 56));
  // One after the other where weights are those of a degree, and on processors with their weights.
  const plan::NodeSpec apart = of(diagonal, Declaration());
  EXPECT_EQ(apart.forward.transient_bytes, matrix_bytes);
  const SphereGroups by_degree = sphere_groups(shape, SphereWeights::ByDegree);
  const plan::NodeSpec degrees = of(by_degree, fields_on_gpu(Precision::BFloat16));
  EXPECT_EQ(degrees.forward.transient_bytes, 56 * matrix_bytes);
  EXPECT_EQ(degrees.forward.kernels, 240 + 5);
  EXPECT_EQ(of(by_degree, Declaration()).forward.transient_bytes, matrix_bytes);
  EXPECT_EQ(of(by_degree, Declaration()).forward.kernels, 2 * 240);
}

// Products of a GPU add up half of the orders over a quarter of the longitudes, where that has as
// many on both sides; else its kernel adds up every order over every longitude. A processor's is a
// fast transform.
TEST(SphereTransform, DeclaresTheOperationsOfItsDevice) {
  for (const std::int64_t longitudes : {12, 13}) {
    const auto basis =
        std::make_shared<const SphereBasis>(SphereGridKind::LegendreGauss, 5, longitudes, 4, 3);
    const kernels::SphereShape shape{5, longitudes, 4, 3};
    ASSERT_EQ(basis->shape().rows(), shape.rows());
    double multiply_adds = 0;
    for (int row = 0; row < 3; ++row) {
      if (longitudes == 12) {
        // Sums and differences of rows, parts, and even and odd orders.
        for (int matrix = 0; matrix < 8; ++matrix) {
          for (int order = 0; order < 2; ++order)
            multiply_adds += 4 /* of a quarter */ + 2 /* degrees */;
        }
      } else {
        for (int order = 0; order < 3; ++order) {
          // Row and mirror, real and imaginary.
          for (std::int64_t longitude = 0; longitude < longitudes; ++longitude) multiply_adds += 4;
        }
        for (std::int64_t coefficient = 0; coefficient < shape.rows(); ++coefficient)
          multiply_adds += 2;
      }
    }
    const auto node = make_sphere_analysis(basis, 2, 7);
    const plan::NodeSpec on_device = node->declare(fields_on_gpu(Precision::Float32));
    EXPECT_EQ(on_device.forward.floating_point_operations, 2 * multiply_adds * 2 * 7);
    EXPECT_EQ(on_device.backward.floating_point_operations, 2 * multiply_adds * 2 * 7);
    EXPECT_NE(node->declare(Declaration()).forward.floating_point_operations,
              on_device.forward.floating_point_operations);
  }
}

}  // namespace
}  // namespace garonne::nn
