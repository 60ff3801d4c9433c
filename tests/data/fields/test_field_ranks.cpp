// Statistics by several ranks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>

#include "data/fields/field_files.hpp"
#include "data/hdf5/virtual_files.hpp"
#include "data/statistics/field_statistics.hpp"
#include "dist/session.hpp"

namespace garonne::data {
namespace {

using testing::YearlyFile;

// A folder that all ranks see, which rank 0 fills and removes.
class SharedFolder {
 public:
  SharedFolder(dist::Session& session, const std::string& name) : session_(session) {
    folder_ = session.broadcast(
        (std::filesystem::temp_directory_path() / (name + std::to_string(getpid()))).string());
    if (session.rank() == 0) std::filesystem::create_directories(folder_);
  }
  ~SharedFolder() {
    session_.barrier();
    if (session_.rank() == 0) std::filesystem::remove_all(folder_);
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

 private:
  dist::Session& session_;
  std::string folder_;
};

TEST(FieldRanks, StatisticsDoNotDependOnThem) {
  dist::Session session = dist::Session::start();
  const SharedFolder folder(session, "garonne_field_ranks_");
  if (session.rank() == 0) {
    YearlyFile year;
    year.frames = 13;
    year.write(folder.path("1.h5"));
    year.first_frame = 13;
    year.write(folder.path("2.h5"));
  }
  session.barrier();
  FieldQuery query;
  query.path = folder.path("");
  const FieldSummaries together = summarise_fields(query, true, session);
  dist::Session single = dist::Session::single();
  const FieldSummaries alone = summarise_fields(query, true, single);
  EXPECT_EQ(together.inputs.mean, alone.inputs.mean);
  EXPECT_EQ(together.inputs.deviation, alone.inputs.deviation);
  EXPECT_EQ(together.inputs.least, alone.inputs.least);
  EXPECT_EQ(together.inputs.greatest, alone.inputs.greatest);
  EXPECT_EQ(together.inputs.difference_deviation, alone.inputs.difference_deviation);
  ASSERT_EQ(together.inputs.point_mean.size(), alone.inputs.point_mean.size());
  for (std::size_t index = 0; index < alone.inputs.point_mean.size(); ++index) {
    EXPECT_NEAR(together.inputs.point_mean[index], alone.inputs.point_mean[index], 1e-9);
    EXPECT_NEAR(together.inputs.point_deviation[index], alone.inputs.point_deviation[index], 1e-9);
  }
}

// Ranks that read parts of a virtual file find what one finds in plain ones.
TEST(FieldRanks, VirtualYearsAreThoseOfPlainOnes) {
  dist::Session ranks = dist::Session::start();
  const SharedFolder folder(ranks, "garonne_virtual_ranks_");
  testing::VirtualYears years;
  years.chunk = {2, 1, 5, 4};
  if (ranks.rank() == 0) {
    years.write_sources(folder.path("data"));
    years.write_virtual(folder.path("data/all.h5v"));
    years.all.write(folder.path("plain.h5"));
  }
  ranks.barrier();
  const FieldSummaries together =
      summarise_fields(testing::query_of(folder.path("data/all.h5v")), true, ranks);
  const FieldSummaries plain =
      summarise_fields(testing::query_of(folder.path("plain.h5")), true, ranks);
  EXPECT_EQ(together.inputs.mean, plain.inputs.mean);
  EXPECT_EQ(together.inputs.deviation, plain.inputs.deviation);
  EXPECT_EQ(together.inputs.difference_deviation, plain.inputs.difference_deviation);
  EXPECT_EQ(together.inputs.point_mean, plain.inputs.point_mean);
}

// The last frame is bad: only the last rank reads it, and all stop with its message.
TEST(FieldRanks, ABadFrameStopsAllOfThem) {
  dist::Session session = dist::Session::start();
  const SharedFolder folder(session, "garonne_bad_field_");
  const std::string path = folder.path("1979.h5");
  if (session.rank() == 0) {
    YearlyFile().write(path, [](std::vector<float>& values) {
      values.back() = std::numeric_limits<float>::quiet_NaN();
    });
  }
  session.barrier();
  FieldQuery query;
  query.path = path;
  try {
    summarise_fields(query, false, session);
    ADD_FAILURE() << "no error";
  } catch (const dist::AgreedError& error) {
    EXPECT_EQ(error.code(), ExitCode::Data);
    for (const std::string& word : {path, std::string("\"fields\""), std::string("z500")}) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace garonne::data
