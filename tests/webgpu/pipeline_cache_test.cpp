#include "backend/webgpu/pipeline_cache.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include <jerboa/frontend/compile.h>
#include <jerboa/ops/ops.h>

#include "support/temp_folder.h"

namespace jerboa::webgpu {
namespace {

namespace fs = std::filesystem;

class PipelineCacheTest : public ::testing::Test {
 protected:
  static void store(PipelineCache& cache, std::string_view key, std::string_view value) {
    cache.store(key, std::as_bytes(std::span(value)));
  }
  static std::string load(PipelineCache& cache, std::string_view key) {
    std::string value(cache.size_of(key), '\0');
    EXPECT_TRUE(value.empty() || cache.load(key, std::as_writable_bytes(std::span(value))));
    return value;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> paths;
    for (const auto& file : fs::directory_iterator(folder)) paths.push_back(file.path());
    return paths;
  }

  test::TempFolder parent;
  fs::path folder = parent / "pipelines";
};

TEST_F(PipelineCacheTest, KeepsEntriesOverASecondStart) {
  {
    PipelineCache cache(folder);
    EXPECT_EQ(load(cache, "key"), "");
    store(cache, "key", "value");
    store(cache, "other", std::string(100000, 'x'));
  }
  PipelineCache cache(folder);
  EXPECT_EQ(load(cache, "key"), "value");
  EXPECT_EQ(load(cache, "other"), std::string(100000, 'x'));
  EXPECT_EQ(load(cache, "third"), "");
  EXPECT_EQ(cache.statistics().hits, 2);
  EXPECT_EQ(cache.statistics().misses, 1);
}

TEST_F(PipelineCacheTest, MissesDamagedEntries) {
  PipelineCache cache(folder);
  store(cache, "key", "a value that is long enough");
  ASSERT_EQ(files().size(), 1u);
  const fs::path path = files().front();
  const auto bytes = static_cast<int>(fs::file_size(path));
  for (int at = 0; at < bytes; ++at) {
    store(cache, "key", "a value that is long enough");
    {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(at);
      const int byte = file.get();
      file.seekp(at);
      file.put(static_cast<char>(byte ^ 0x10));
    }
    EXPECT_EQ(load(cache, "key"), "") << "byte " << at;
    fs::resize_file(path, static_cast<std::uintmax_t>(at));
    EXPECT_EQ(load(cache, "key"), "") << at << " bytes";
  }
  store(cache, "key", "a value that is long enough");
  EXPECT_EQ(load(cache, "key"), "a value that is long enough");
}

TEST_F(PipelineCacheTest, MissesTheEntryOfAnotherKey) {
  PipelineCache cache(folder);
  store(cache, "key", "value");
  const fs::path first = files().front();
  store(cache, "kez", "other");
  for (const fs::path& path : files())
    if (path != first) fs::copy_file(first, path, fs::copy_options::overwrite_existing);
  EXPECT_EQ(load(cache, "kez"), "");
  EXPECT_EQ(load(cache, "key"), "value");
}

TEST_F(PipelineCacheTest, RemovesTheLeastRecentlyUsedEntries) {
  {
    PipelineCache cache(folder);
    for (int i = 0; i < 8; ++i) store(cache, "key" + std::to_string(i), std::string(1000, 'x'));
    const auto now = fs::file_time_type::clock::now();
    for (const fs::path& path : files()) fs::last_write_time(path, now - std::chrono::hours(1000));
    EXPECT_NE(load(cache, "key3"), "");  // which notes its use
  }
  PipelineCache cache(folder, 4000);
  EXPECT_LE(files().size(), 3u);
  EXPECT_NE(load(cache, "key3"), "");
}

TEST_F(PipelineCacheTest, WorksWithoutAFolder) {
  std::ofstream(folder) << "a file where the folder should be";
  PipelineCache cache(folder);
  store(cache, "key", "value");
  EXPECT_EQ(load(cache, "key"), "");
  EXPECT_EQ(cache.statistics().stored, 0);
}

TEST_F(PipelineCacheTest, ServesThreadsAtOnce) {
  PipelineCache cache(folder);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&cache, thread] {
      for (int i = 0; i < 100; ++i) {
        const std::string key = "key" + std::to_string((i + thread) % 10);
        const std::string value = load(cache, key);
        EXPECT_TRUE(value.empty() || value == key + key);
        store(cache, key, key + key);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 10; ++i) EXPECT_NE(load(cache, "key" + std::to_string(i)), "");
}

// A second device with the same shaders takes them from the folder, and computes the same.
TEST_F(PipelineCacheTest, SparesTheSecondDeviceCompiling) {
  const auto run = [&] {
    const Device device = Device::webgpu({.pipeline_cache = folder});
    Session session(device);
    session.add_entry("run", trace([] {
                        const Tensor x = tensor_input("x", {64});
                        output("y", sum(exp(x) * 3));
                      }));
    HostTensor x(DType::f32, {64});
    std::ranges::fill(x.f32(), 0.5f);
    return session.run("run", {{"x", x}}).get("y").number(0);
  };
  const auto counted = [&] { return PipelineCache::shared(folder).statistics(); };
  const double first = run();
  const auto before = counted();
  EXPECT_GT(before.stored, 0);
  EXPECT_EQ(run(), first);
  const auto after = counted();
  EXPECT_GT(after.hits, before.hits);
  EXPECT_EQ(after.stored, before.stored);
}

}  // namespace
}  // namespace jerboa::webgpu
