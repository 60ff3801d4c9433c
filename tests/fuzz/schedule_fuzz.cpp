// garonne.pipeline-schedule.
#include "fuzz/fuzz_target.hpp"

#include <nlohmann/json.hpp>
#include "plan/pipeline/schedule_json.hpp"

using namespace garonne;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::take_or_refuse([&] {
    const plan::PipelineSchedule schedule =
        plan::pipeline_schedule_from_text(std::string(fuzz::text_of(data, size)), "input");
    const std::string written = plan::to_json(schedule).dump();
    fuzz::hold(
        plan::to_json(plan::pipeline_schedule_from_text(written, "written")).dump() == written,
        "a schedule is read again as it was written");
  });
}
