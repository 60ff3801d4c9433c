// The inner loops of all kernels as a table of functions, compiled for several instruction sets and
// chosen once by the processor's flags; private to this room. A loop works on [begin, end) of the
// axis that the kernel is cut along and knows nothing of threads.
#pragma once

#include "kernels/adafactor_update.hpp"
#include "kernels/attention_tile.hpp"
#include "kernels/dropout.hpp"
#include "kernels/element_type.hpp"
#include "kernels/lamb_update.hpp"
#include "kernels/momentum_update.hpp"
#include "kernels/optimizer_update.hpp"
#include "kernels/rotary.hpp"
#include "kernels/sphere_table.hpp"
#include "kernels/sphere_transform.hpp"

#include <cstddef>
#include <cstdint>

namespace garonne::kernels {

struct LayerNormForwardArguments {
  const void* x;
  const void* gain;
  const void* bias;
  double epsilon;
  void* y;
  void* mean;
  void* inverse_deviation;
  std::int64_t hidden;
};

// Cut along row partitions; partition p writes its sums to partial + p * 2 * hidden.
struct LayerNormBackwardArguments {
  const void* gradient_y;
  const void* x;
  const void* gain;
  const void* mean;
  const void* inverse_deviation;
  void* gradient_x;
  bool accumulate_x;
  void* partial;  // G [partitions, 2, hidden] or null
  std::int64_t partitions;
  std::int64_t rows;
  std::int64_t hidden;
};

struct RmsNormForwardArguments {
  const void* x;
  const void* gain;
  double epsilon;
  void* y;
  void* inverse;
  std::int64_t hidden;
};

// Cut along row partitions; partition p writes its sums to partial + p * hidden.
struct RmsNormBackwardArguments {
  const void* gradient_y;
  const void* x;
  const void* gain;
  const void* inverse;
  void* gradient_x;
  bool accumulate_x;
  void* partial;  // G [partitions, hidden] or null
  std::int64_t partitions;
  std::int64_t rows;
  std::int64_t hidden;
};

// Cut along rows.
struct SwigluArguments {
  const void* gradient_y;  // backward only
  const void* x;
  void* out;
  std::int64_t inner;
};

// Cut along rows.
struct RotaryArguments {
  const void* x;
  const float* table;
  void* y;
  RotaryHeads heads;
  bool back;
  std::int64_t sequence;
};

// destination[0, columns) = (or +=) the sum over rows of a matrix of G; cut along columns.
struct ColumnSumArguments {
  const void* source;
  void* destination;
  bool accumulate;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t row_stride;
};

// Cut along the flat elements of [batch, elements_per_sample].
struct DropoutArguments {
  const void* residual;
  const void* x;
  void* out;
  Dropout dropout;
  const std::int64_t* samples;
  std::int64_t elements_per_sample;
};

// Cut along the rows of all matrices of the tile.
struct AttentionTileArguments {
  AttentionTile tile;
  void* scores;
  void* gradient;  // backward only
  void* log_sums;  // written forward, read backward
  Dropout dropout;
  const std::int64_t* samples;
};

// Cut along the rows of [batch * sequence].
struct EmbeddingForwardArguments {
  const std::int64_t* tokens;
  const void* token_table;
  const void* position_table;
  void* out;
  Dropout dropout;
  const std::int64_t* samples;
  std::int64_t sequence;
  std::int64_t hidden;
};

// Cut along columns of hidden; the tables are only added to.
struct EmbeddingBackwardArguments {
  const void* gradient_out;
  const std::int64_t* tokens;
  void* gradient_token_table;
  void* gradient_position_table;
  Dropout dropout;
  const std::int64_t* samples;
  std::int64_t rows;
  std::int64_t sequence;
  std::int64_t hidden;
  std::int64_t first_token;  // the table has token_rows rows from here on; others are passed over
  std::int64_t token_rows;
};

struct CrossEntropyArguments {
  void* logits;
  const std::int64_t* targets;
  double gradient_scale;
  bool write_gradient;
  double* row_losses;
  std::int64_t vocabulary;
};

struct LogitStatisticsArguments {
  const void* logits;
  const std::int64_t* targets;
  std::int64_t first;
  std::int64_t columns;
  std::int64_t width;
  double* log_sums;
  double* target_logits;
};

struct LogitGradientArguments {
  const void* logits;
  const std::int64_t* targets;
  std::int64_t first;
  std::int64_t columns;
  std::int64_t width;
  const double* log_sums;
  const double* log_sum_gradients;
  const double* target_gradients;
  void* gradient;
};

struct GeluArguments {
  const void* gradient_y;  // backward only
  const void* x;
  void* out;
};

// Cut along rows.
struct AddBiasArguments {
  void* y;
  const void* bias;
  std::int64_t columns;
};

struct AdamWArguments {
  void* parameter;
  void* first_moment;
  void* second_moment;
  const void* gradient;
  AdamW options;
  AdamWRates rates;
  double gradient_scale;
  void* bfloat16_copy;
};

struct MomentumArguments {
  void* parameter;
  void* moment;
  const void* gradient;
  Momentum options;
  double learning_rate;
  double gradient_scale;
  void* bfloat16_copy;
};

// The options have the rates by value.
struct LambArguments {
  void* parameter;
  void* first_moment;
  void* second_moment;
  const void* gradient;
  Lamb options;
  double gradient_scale;
  void* bfloat16_copy;
};

// Cut along blocks of sum_block elements; block b writes block_sums[b].
struct LambSquaresArguments {
  const void* parameter;
  const void* first_moment;
  const void* second_moment;
  const void* gradient;
  Lamb options;
  double gradient_scale;
  std::int64_t count;
  double* block_sums;
};

// Cut along elements, those of the padding included. The options of these and the following have
// the rates by value.
struct AdafactorArguments {
  void* parameter;
  const void* row_moments;
  const void* column_moments;
  const void* gradient;
  MatrixPart part;
  Adafactor options;
  double gradient_scale;
  void* bfloat16_copy;
};

// Cut along blocks of sum_block elements from `first` on; block b writes block_sums[b].
struct AdafactorSquaresArguments {
  const void* parameter;
  const void* row_moments;
  const void* column_moments;
  const void* gradient;
  MatrixPart part;
  Adafactor options;
  double gradient_scale;
  std::int64_t first;
  double* block_sums;
};

// Cut along the rows here that the part has elements of, or along all columns here; adds to the
// sums of all rows, or of all columns, of the whole.
struct AdafactorSumsArguments {
  const void* parameter;
  const void* gradient;
  MatrixPart part;
  double l2;
  double gradient_scale;
  double* sums;
};

// Not cut.
struct PlainSumArguments {
  const void* values;
  double* total;
};

// Cut along the side.
struct AdafactorMomentsArguments {
  void* moments;
  bool of_rows;
  MatrixPart part;
  Adafactor options;
};

struct CombineArguments {
  const void* source;
  void* destination;
  bool accumulate;
};

// Cut along blocks of sum_block elements; block b writes block_sums[b].
struct SumOfSquaresArguments {
  const void* values;
  std::int64_t count;
  double* block_sums;
};
inline constexpr std::int64_t sum_block = 65536;

struct FillNormalArguments {
  void* values;
  PhiloxKey key;
  double deviation;
  std::int64_t first_element;
  std::uint64_t step;
  std::uint64_t sample;
};

// Of one sample. Cut along blocks of points; block b writes sums[b] (the shift: along channels).
struct InstanceSumArguments {
  const void* x;
  const void* gradient_y;         // backward only, as the two below
  const void* mean;               // G [channels]
  const void* inverse_deviation;  // G [channels]
  double* shift;                  // [channels]; forward only
  double* sums;                   // [blocks, 2, channels]
  std::int64_t blocks;
  std::int64_t points;
  std::int64_t channels;
};

// Of one sample; cut along points.
struct InstanceApplyArguments {
  const void* x;
  const void* gradient_y;  // backward only
  const void* gain;
  const void* bias;               // forward only
  const void* mean;               // G [channels]
  const void* inverse_deviation;  // G [channels]
  const double* sums;             // [2, channels] of the gradient; backward only
  void* out;
  std::int64_t points;
  std::int64_t channels;
};

// One chunk of channels of one batch entry; Fourier sums are cut along northern rows, Legendre sums
// along orders.
struct SphereLoopArguments {
  const SphereArguments* call;
  std::int64_t entry;
  std::int64_t first_channel;
  void* scratch;  // of this thread
};
// One loop for each element type, in the order of ElementType; null where a type has none.
template <typename Arguments>
struct Loop {
  using Function = void (*)(const Arguments& arguments, std::int64_t begin, std::int64_t end);
  Function of_type[3];

  Function operator[](ElementType type) const { return of_type[static_cast<std::size_t>(type)]; }
};

struct AdafactorLoops {
  Loop<AdafactorArguments> update;
  Loop<AdafactorSquaresArguments> squares;
  Loop<AdafactorSumsArguments> rows;
  Loop<AdafactorSumsArguments> columns;
  Loop<AdafactorMomentsArguments> moments;
  Loop<PlainSumArguments> sum;
};

struct SphereLoops {
  Loop<SphereLoopArguments> fourier_analysis;
  Loop<SphereLoopArguments> fourier_synthesis;
  Loop<SphereLoopArguments> legendre_analysis;
  Loop<SphereLoopArguments> legendre_synthesis;
};

struct Loops {
  const char* name;
  Loop<LayerNormForwardArguments> layer_norm_forward;
  Loop<LayerNormBackwardArguments> layer_norm_backward;
  Loop<ColumnSumArguments> column_sum;
  Loop<DropoutArguments> dropout_add;
  Loop<EmbeddingForwardArguments> embedding_forward;
  Loop<EmbeddingBackwardArguments> embedding_backward;
  Loop<CrossEntropyArguments> cross_entropy;
  Loop<LogitStatisticsArguments> logit_statistics;
  Loop<LogitGradientArguments> logit_gradient;
  Loop<InstanceSumArguments> instance_shift;
  Loop<InstanceSumArguments> instance_statistics;
  Loop<InstanceSumArguments> instance_products;
  Loop<InstanceApplyArguments> instance_forward;
  Loop<InstanceApplyArguments> instance_backward;
  Loop<GeluArguments> gelu_forward;
  Loop<GeluArguments> gelu_backward;
  Loop<AddBiasArguments> add_bias;
  Loop<RmsNormForwardArguments> rms_norm_forward;
  Loop<RmsNormBackwardArguments> rms_norm_backward;
  Loop<SwigluArguments> swiglu_forward;
  Loop<SwigluArguments> swiglu_backward;
  Loop<RotaryArguments> rotate_heads;
  Loop<AttentionTileArguments> attention_weights;
  Loop<AttentionTileArguments> attention_weights_gradient;
  const Loop<AdamWArguments>* adamw;               // the same bits from every table
  const Loop<MomentumArguments>* momentum;         // likewise
  const Loop<LambArguments>* lamb;                 // likewise
  const Loop<LambSquaresArguments>* lamb_squares;  // likewise
  const AdafactorLoops* adafactor;                 // likewise
  Loop<CombineArguments> add_into;
  Loop<CombineArguments> accumulate_from;
  Loop<CombineArguments> to_bfloat16;
  Loop<SumOfSquaresArguments> sum_of_squares;
  const Loop<FillNormalArguments>* fill_normal;  // likewise
  const SphereLoops* sphere;
};

// The loops for this processor.
const Loops& loops();

namespace baseline {
extern const Loops table;
}  // namespace baseline
#if defined(__x86_64__)
namespace avx2 {
extern const Loops table;
}
namespace avx512 {
extern const Loops table;
}
#endif

}  // namespace garonne::kernels
