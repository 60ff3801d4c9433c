// What has the same bits everywhere and its table, inside the namespace of one instruction set.
namespace exact {
#include "kernels/cpu/loops_adafactor.inl"
#include "kernels/cpu/loops_lamb.inl"
#include "kernels/cpu/loops_momentum.inl"
#include "kernels/cpu/loops_normal.inl"
#include "kernels/cpu/loops_update.inl"
}  // namespace exact

extern const Loop<FillNormalArguments> fill_normal_loops = {
    {exact::fill_normal<float>, exact::fill_normal<double>, exact::fill_normal<BFloat16>}};
extern const Loop<AdamWArguments> adamw_loops = {
    {exact::adamw<float>, exact::adamw<double>, nullptr}};
extern const Loop<MomentumArguments> momentum_loops = {
    {exact::momentum<float>, exact::momentum<double>, nullptr}};
extern const Loop<LambArguments> lamb_loops = {{exact::lamb<float>, exact::lamb<double>, nullptr}};
extern const Loop<LambSquaresArguments> lamb_squares_loops = {
    {exact::lamb_squares<float>, exact::lamb_squares<double>, nullptr}};
extern const AdafactorLoops adafactor_loops = {
    {{exact::adafactor<float>, exact::adafactor<double>, nullptr}},
    {{exact::adafactor_squares<float>, exact::adafactor_squares<double>, nullptr}},
    {{exact::adafactor_rows<float>, exact::adafactor_rows<double>, nullptr}},
    {{exact::adafactor_columns<float>, exact::adafactor_columns<double>, nullptr}},
    {{exact::adafactor_moments<float>, exact::adafactor_moments<double>, nullptr}},
    {{exact::plain_sum<float>, exact::plain_sum<double>, nullptr}}};
