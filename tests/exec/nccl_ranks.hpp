// Several ranks of tests, each with a GPU's device over the made-up runtime, that exchange over the
// made-up NCCL; and the same on CPUs, over MPI.
#pragma once

#include <fmt/format.h>
#include <mpi.h>

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "dist/communication_thread.hpp"
#include "dist/fake_nccl.hpp"
#include "dist/nccl_transport.hpp"
#include "dist/session.hpp"
#include "exec/cuda_ranks.hpp"
#include "nn/gpt/gpt.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_registry.hpp"

namespace garonne::exec {

// A transport whose waits the device of a test is told of.
class ToldTransport final : public dist::Transport {
 public:
  ToldTransport(std::unique_ptr<dist::Transport> inner, HostKernels& device, int rank)
      : Transport(inner->members(), rank), inner_(std::move(inner)), device_(device) {}

  std::string_view name() const override { return inner_->name(); }
  bool on_device() const override { return inner_->on_device(); }
  dist::SumOrder sum_order() const override { return inner_->sum_order(); }
  dist::Ticket all_reduce_sum(void* data, std::int64_t elements, dist::SumType type,
                              void* staging) override {
    return inner_->all_reduce_sum(data, elements, type, staging);
  }
  dist::Ticket reduce_scatter_sum(void* data, std::int64_t elements, dist::SumType type,
                                  void* staging) override {
    return inner_->reduce_scatter_sum(data, elements, type, staging);
  }
  dist::Ticket all_gather(void* data, std::int64_t elements, std::int64_t element_bytes) override {
    return inner_->all_gather(data, elements, element_bytes);
  }
  dist::Ticket broadcast(void* data, std::int64_t bytes, int root) override {
    return inner_->broadcast(data, bytes, root);
  }
  dist::Ticket send(const void* data, std::int64_t bytes, int to, int tag) override {
    return inner_->send(data, bytes, to, tag);
  }
  dist::Ticket receive(void* data, std::int64_t bytes, int from, int tag) override {
    return inner_->receive(data, bytes, from, tag);
  }
  void wait(dist::Ticket ticket) override {
    inner_->wait(ticket);
    device_.follows();
  }
  bool done(dist::Ticket ticket) override { return inner_->done(ticket); }
  bool can_be_recorded() const override { return inner_->can_be_recorded(); }
  void begin_recording() override { inner_->begin_recording(); }
  void end_recording() override { inner_->end_recording(); }
  void drop_recording() override { inner_->drop_recording(); }
  void begin_replay(const std::string& activity, double own_seconds) override {
    inner_->begin_replay(activity, own_seconds);
  }
  void end_replay() override { inner_->end_replay(); }

 private:
  std::unique_ptr<dist::Transport> inner_;
  HostKernels& device_;
};

enum class Axis { Data, Tensor, Pipeline };

// How all ranks of the session share the small GPT along one axis.
struct Sharing {
  Axis axis = Axis::Data;
  int zero = 0;  // of data ranks
  const char* schedule = "1f1b";
  // Over tensor ranks each forward but the first runs together with the backward before it.
  bool overlaps = false;
  bool agree = true;      // else each rank decides for itself, as it must not
  bool over_mpi = false;  // transports of the host, with which no steps are taken
};

class SharedRanks {
 public:
  SharedRanks(dist::Session& session, dist::CommunicationThread& thread, const Sharing& sharing)
      : session_(session), thread_(thread), sharing_(sharing) {
    members_.resize(static_cast<std::size_t>(session.size()));
    std::iota(members_.begin(), members_.end(), 0);
  }

  Setting setting(Setting setting = {}) {
    if (sharing_.axis == Axis::Tensor) {
      setting.make = [rank = session_.rank(), ranks = session_.size()](const auto& declaration) {
        return nn::make_gpt({2, 32, 4, text_sequence, text_vocabulary, 0.25}, text_batch,
                            declaration, {rank, ranks});
      };
    }
    if (sharing_.axis == Axis::Pipeline) {
      setting.make = [](const auto& declaration) {
        return nn::make_gpt({4, 32, 4, text_sequence, text_vocabulary, 0.25}, text_batch,
                            declaration);
      };
    }
    setting.share = [this](nn::Model& model, plan::StepShape& step) { return share(model, step); };
    return setting;
  }

  // Collective.
  std::unique_ptr<CpuRank> make_cpu(const Setting& setting) {
    auto rank = std::make_unique<CpuRank>(this->setting(setting));
    rank->watches = false;
    connect(*rank, [&](const std::vector<int>& members, const std::string&) {
      return dist::make_transport("mpi", session_, thread_, members);
    });
    return rank;
  }
  std::unique_ptr<GpuRank> make_gpu(const Setting& setting, device::FakeCudaSettings fake = {},
                                    std::int64_t bytes_for_others = 0) {
    fake.bus_id = fmt::format("0000:{:02X}:00.0", session_.rank() + 1);
    fake.longest_hold_seconds = 0.002;  // other processes wait for it
    auto rank = std::make_unique<GpuRank>(this->setting(setting), fake, device::CudaSettings{},
                                          bytes_for_others);
    rank->watches = false;
    nccl_ = std::make_shared<dist::FakeNccl>(rank->runtime(), MPI_COMM_WORLD);
    side_ = {.device = &rank->cuda(), .runtime = &rank->runtime()};
    connect(*rank,
            [&](const std::vector<int>& members,
                const std::string& name) -> std::unique_ptr<dist::Transport> {
              if (sharing_.over_mpi) return dist::make_transport("mpi", session_, thread_, members);
              dist::TransportOptions options;
              options.name = name;
              options.limit_seconds = 60;
              options.side = &side_;
              if (name == "pipeline") {
                options.lanes = place_.lane_numbers;
                for (const auto& lane : place_.lanes)
                  options.message_lanes.push_back({lane.from, lane.to, lane.number});
              }
              return std::make_unique<ToldTransport>(
                  std::make_unique<dist::NcclTransport>(
                      session_, thread_, members, options,
                      dist::NcclParts{.library = nccl_, .sum = nccl_->sum()}),
                  rank->device(), session_.rank());
            });
    return rank;
  }

  std::vector<std::string> violations() const { return nccl_->violations(); }
  // While the rank is there.
  dist::FakeNccl& nccl() { return *nccl_; }
  void drop_nccl() { nccl_.reset(); }

 private:
  plan::RankPlace share(nn::Model& model, plan::StepShape& step) {
    plan::RankPlace place;
    place.rank = session_.rank();
    step.world_group = members_;
    step.data_group = {session_.rank()};
    switch (sharing_.axis) {
      case Axis::Data:
        step.data_group = members_;
        step.zero = sharing_.zero;
        place.coordinates.data = session_.rank();
        break;
      case Axis::Tensor:
        step.data_group = {0};
        step.tensor_group = members_;
        place.coordinates.tensor = session_.rank();
        if (sharing_.overlaps) step.pipeline.order = overlapping_order();
        break;
      case Axis::Pipeline: {
        // Blocks are dealt out alike on all ranks.
        for (auto& node : model.graph.nodes)
          node.forward_keep.seconds = node.backward.seconds = node.backward_weight.seconds = 1;
        plan::PipelineRequest request;
        request.stages = session_.size();
        request.micro_batches = Rank::micro_batches;
        const plan::PipelineSchedule schedule =
            plan::make_pipeline_schedule(sharing_.schedule, request);
        plan::PipelineStage stage =
            plan::make_pipeline_stage(model.graph, schedule, session_.rank());
        model = nn::cut_model(model, stage.cut);
        step.pipeline = std::move(stage.place);
        step.pipeline.group = members_;
        place.coordinates.pipeline = session_.rank();
        break;
      }
    }
    place_ = step.pipeline;
    place.data_group = step.data_group;
    place.tensor_group = step.tensor_group;
    place.pipeline_group = step.pipeline.group;
    place.tied_group = step.pipeline.tied_group;
    return place;
  }

  static std::vector<plan::PipelineOperation> overlapping_order() {
    std::vector<plan::PipelineOperation> order{{plan::PipelineWork::Forward, 0, 0}};
    for (int m = 1; m < Rank::micro_batches; ++m) {
      order.push_back({plan::PipelineWork::Forward, 0, m, /*overlaps_next=*/true});
      order.push_back({plan::PipelineWork::Backward, 0, m - 1});
    }
    order.push_back({plan::PipelineWork::Backward, 0, Rank::micro_batches - 1});
    return order;
  }

  template <typename Make>
  void connect(Rank& rank, const Make& make) {
    std::vector<std::unique_ptr<dist::Transport>> transports;
    const auto add = [&](const std::vector<int>& members, const std::string& name) {
      transports.push_back(make(members, name));
      return transports.back().get();
    };
    RankResources resources;
    if (sharing_.agree) resources.session = &session_;
    if (sharing_.axis == Axis::Data) resources.data = add(members_, "data");
    if (sharing_.axis == Axis::Tensor) resources.tensor = add(members_, "tensor");
    if (sharing_.axis == Axis::Pipeline) resources.pipeline = add(members_, "pipeline");
    if (!place_.tied_group.empty()) resources.tied = add(place_.tied_group, "tied");
    resources.world = add(members_, "world");
    rank.meet(resources, std::move(transports));
  }

  dist::Session& session_;
  dist::CommunicationThread& thread_;
  const Sharing sharing_;
  std::vector<int> members_;
  plan::PipelinePlace place_;
  dist::DeviceSide side_;
  std::shared_ptr<dist::FakeNccl> nccl_;
};

}  // namespace garonne::exec
