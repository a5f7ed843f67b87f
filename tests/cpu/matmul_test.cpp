#include "backend/cpu/matmul.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/simd_targets.h"
#include "hwy/targets.h"

namespace jerboa::cpu {
namespace {

constexpr float poison = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> result(static_cast<std::size_t>(count));
  for (float& value : result) value = values(generator);
  return result;
}

struct Sizes {
  std::int64_t rows, columns, inner;
};

std::string text(const Sizes& s) {
  return std::to_string(s.rows) + "x" + std::to_string(s.columns) + "x" + std::to_string(s.inner);
}

enum class Layout { Rows, Columns, PaddedRows, PaddedColumns, Apart };
constexpr Layout layouts[] = {Layout::Rows, Layout::Columns, Layout::PaddedRows, Layout::PaddedColumns, Layout::Apart};

/// A matrix in a buffer that ends right after its last element, so that AddressSanitizer sees reads beyond.
struct Matrix {
  std::int64_t row = 0, column = 0;
  std::vector<float> values;
  Matrix(std::int64_t rows, std::int64_t columns, Layout layout, unsigned seed) {
    switch (layout) {
      case Layout::Rows: row = columns, column = 1; break;
      case Layout::Columns: row = 1, column = rows; break;
      case Layout::PaddedRows: row = columns + 5, column = 1; break;
      case Layout::PaddedColumns: row = 1, column = rows + 3; break;
      case Layout::Apart: row = 2 * columns + 1, column = 2; break;
    }
    const bool empty = rows == 0 || columns == 0;
    values = random_values(empty ? 0 : (rows - 1) * row + (columns - 1) * column + 1, seed);
  }
  float at(std::int64_t i, std::int64_t j) const { return values[static_cast<std::size_t>(i * row + j * column)]; }
};

double expected_value(const Matrix& a, const Matrix& b, std::int64_t i, std::int64_t j, std::int64_t inner) {
  double sum = 0;
  for (std::int64_t k = 0; k < inner; ++k) sum += static_cast<double>(a.at(i, k)) * b.at(k, j);
  return sum;
}

double tolerance(std::int64_t inner) { return 3e-6 * (1 + std::sqrt(static_cast<double>(inner))); }

/// Counts how often each element arrives, and stores it.
class Recorder : public MatmulEpilogue {
 public:
  Recorder(std::int64_t batch, std::int64_t rows, std::int64_t columns, int workers)
      : rows_(rows),
        columns_(columns),
        workers_(workers),
        values(static_cast<std::size_t>(batch * rows * columns), poison),
        times(values.size(), 0) {}
  void apply(std::int64_t batch, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
             const float* tile, std::int64_t tile_stride, int worker) override {
    if (worker < 0 || worker >= workers_) wrong_worker = true;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        const auto at = static_cast<std::size_t>((batch * rows_ + row + i) * columns_ + column + j);
        values.at(at) = tile[i * tile_stride + j];
        ++times.at(at);
      }
    }
  }

 private:
  std::int64_t rows_, columns_;
  int workers_;

 public:
  std::vector<float> values;
  std::vector<int> times;
  bool wrong_worker = false;
};

Matmul product_of(const Matrix& a, const Matrix& b, const Sizes& s) {
  Matmul m;
  m.rows = s.rows, m.columns = s.columns, m.inner = s.inner;
  m.a = a.values.data(), m.a_row = a.row, m.a_inner = a.column;
  m.b = b.values.data(), m.b_inner = b.row, m.b_column = b.column;
  return m;
}

/// Checks into c of the layout, into c with what lies between its elements untouched, and into an epilogue.
void check(const Sizes& s, Layout a_layout, Layout b_layout, Layout c_layout, ThreadPool& pool) {
  SCOPED_TRACE(text(s) + " a " + std::to_string(static_cast<int>(a_layout)) + " b " +
               std::to_string(static_cast<int>(b_layout)) + " c " + std::to_string(static_cast<int>(c_layout)));
  const Matrix a(s.rows, s.inner, a_layout, 1), b(s.inner, s.columns, b_layout, 2);
  Matrix c(s.rows, s.columns, c_layout, 3);
  std::fill(c.values.begin(), c.values.end(), poison);
  Matmul m = product_of(a, b, s);
  m.c = c.values.data(), m.c_row = c.row, m.c_column = c.column;
  run_matmul(m, pool);

  Recorder recorder(1, s.rows, s.columns, pool.size());
  m.c = nullptr;
  m.epilogue = &recorder;
  run_matmul(m, pool);
  EXPECT_FALSE(recorder.wrong_worker);

  std::vector<bool> written(c.values.size(), false);
  int wrong = 0;
  for (std::int64_t i = 0; i < s.rows; ++i) {
    for (std::int64_t j = 0; j < s.columns; ++j) {
      const double expected = expected_value(a, b, i, j, s.inner);
      const auto at = static_cast<std::size_t>(i * s.columns + j);
      if (!(std::abs(c.at(i, j) - expected) <= tolerance(s.inner))) ++wrong;
      if (recorder.times[at] != 1 || recorder.values[at] != c.at(i, j)) ++wrong;
      written[static_cast<std::size_t>(i * c.row + j * c.column)] = true;
    }
  }
  EXPECT_EQ(wrong, 0);
  for (std::size_t i = 0; i < written.size(); ++i) {
    if (!written[i]) {
      ASSERT_TRUE(std::isnan(c.values[i])) << "wrote between the elements of c";
    }
  }
}

void check_small(const Sizes& s, Layout a_layout, Layout b_layout, bool accumulate, float scale) {
  SCOPED_TRACE(text(s) + " a " + std::to_string(static_cast<int>(a_layout)) + " b " +
               std::to_string(static_cast<int>(b_layout)));
  const Matrix a(s.rows, s.inner, a_layout, 4), b(s.inner, s.columns, b_layout, 5);
  Matrix c(s.rows, s.columns, Layout::PaddedRows, 6);
  const Matrix before = c;
  if (!accumulate) std::fill(c.values.begin(), c.values.end(), poison);
  SmallMatmul m;
  m.rows = s.rows, m.columns = s.columns, m.inner = s.inner;
  m.a = a.values.data(), m.a_row = a.row, m.a_inner = a.column;
  m.b = b.values.data(), m.b_inner = b.row, m.b_column = b.column;
  m.c = c.values.data(), m.c_row = c.row;
  m.scale = scale, m.accumulate = accumulate;
  std::vector<float> scratch;
  run_small_matmul(m, scratch);
  int wrong = 0;
  for (std::int64_t i = 0; i < s.rows; ++i) {
    for (std::int64_t j = 0; j < s.columns; ++j) {
      const double expected = (accumulate ? before.at(i, j) : 0) + scale * expected_value(a, b, i, j, s.inner);
      if (!(std::abs(c.at(i, j) - expected) <= tolerance(s.inner))) ++wrong;
    }
    for (std::int64_t j = s.columns; s.columns > 0 && i + 1 < s.rows && j < c.row; ++j) {
      const float between = c.values[static_cast<std::size_t>(i * c.row + j)];
      if (accumulate ? between != before.values[static_cast<std::size_t>(i * c.row + j)] : !std::isnan(between))
        ++wrong;
    }
  }
  EXPECT_EQ(wrong, 0);
}

/// Every test runs once per instruction set that the library has and this CPU supports.
class MatmulTest : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
  ThreadPool two_threads{2};
};

TEST_P(MatmulTest, SmallSizesOfEveryLayout) {
  unsigned number = 0;
  for (std::int64_t rows = 1; rows <= 40; rows += 1 + rows / 16) {
    for (std::int64_t columns = 1; columns <= 40; columns += 1 + columns / 8) {
      for (const std::int64_t inner : {1, 2, 3, 4, 7, 17, 40}) {
        // The sweep covers all layouts and all sizes, though not every combination.
        const Layout a = layouts[number % 5], b = layouts[number / 5 % 5], c = layouts[number / 25 % 5];
        number += 1 + number % 3;
        check({rows, columns, inner}, a, b, c, two_threads);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(MatmulTest, EveryLayoutWithEveryOther) {
  for (const Sizes& s : {Sizes{5, 37, 19}, Sizes{29, 67, 33}, Sizes{1, 50, 129}, Sizes{50, 1, 129}, Sizes{3, 5, 1}}) {
    for (const Layout a : layouts) {
      for (const Layout b : layouts) {
        for (const Layout c : layouts) check(s, a, b, c, two_threads);
      }
    }
  }
}

TEST_P(MatmulTest, LargeOddSizes) {
  for (const Sizes& s : {Sizes{257, 521, 391}, Sizes{131, 263, 1031}, Sizes{389, 70, 800}, Sizes{13, 1500, 770},
                         Sizes{1, 1031, 997}, Sizes{2, 997, 515}, Sizes{4, 700, 1000}, Sizes{7, 333, 1025},
                         Sizes{8, 640, 64}, Sizes{1031, 1, 500}, Sizes{777, 3, 403}, Sizes{300, 10, 512}}) {
    check(s, Layout::Rows, Layout::Rows, Layout::Rows, two_threads);
    check(s, Layout::Columns, Layout::PaddedRows, Layout::PaddedRows, two_threads);
    check(s, Layout::PaddedRows, Layout::Columns, Layout::Columns, two_threads);
    check(s, Layout::Apart, Layout::Apart, Layout::Apart, two_threads);
  }
}

TEST_P(MatmulTest, EmptySizes) {
  check({5, 7, 0}, Layout::Rows, Layout::Rows, Layout::Rows, two_threads);
  check({1, 70, 0}, Layout::Rows, Layout::Columns, Layout::Rows, two_threads);
  check({100, 300, 0}, Layout::Rows, Layout::Rows, Layout::Apart, two_threads);
  check({0, 7, 5}, Layout::Rows, Layout::Rows, Layout::Rows, two_threads);
  check({7, 0, 5}, Layout::Rows, Layout::Rows, Layout::Rows, two_threads);
  check_small({5, 40, 0}, Layout::Rows, Layout::Rows, false, 2);
  check_small({5, 40, 0}, Layout::Rows, Layout::Columns, true, 2);
  check_small({0, 7, 5}, Layout::Rows, Layout::Rows, false, 1);
  check_small({7, 0, 5}, Layout::Rows, Layout::Rows, false, 1);
}

TEST_P(MatmulTest, BatchesWithBroadcastOperands) {
  struct Case {
    Sizes sizes;
    std::int64_t batch;
    bool a_shared, b_shared;
  };
  for (const Case& t :
       {Case{{17, 33, 9}, 7, false, false}, Case{{17, 33, 9}, 7, true, false}, Case{{17, 33, 9}, 7, false, true},
        Case{{128, 128, 32}, 12, false, false}, Case{{130, 300, 401}, 3, false, true},
        Case{{1, 65, 70}, 9, false, false}, Case{{3, 65, 70}, 9, false, true}, Case{{90, 1, 70}, 5, false, false}}) {
    for (const bool transposed : {false, true}) {
      const Sizes s = t.sizes;
      SCOPED_TRACE(text(s));
      const std::int64_t a_size = s.rows * s.inner, b_size = s.inner * s.columns, c_size = s.rows * s.columns;
      const auto a = random_values(a_size * t.batch, 7), b = random_values(b_size * t.batch, 8);
      std::vector<float> c(static_cast<std::size_t>((c_size + 3) * t.batch), poison);
      Matmul m;
      m.rows = s.rows, m.columns = s.columns, m.inner = s.inner;
      m.a = a.data(), m.a_row = s.inner, m.a_inner = 1;
      m.b = b.data(), m.b_inner = transposed ? 1 : s.columns, m.b_column = transposed ? s.inner : 1;
      m.c = c.data(), m.c_row = s.columns;
      for (std::int64_t i = 0; i < t.batch; ++i) {
        m.a_offsets.push_back(t.a_shared ? 0 : i * a_size);
        m.b_offsets.push_back(t.b_shared ? 0 : (t.batch - 1 - i) * b_size);
        m.c_offsets.push_back(i * (c_size + 3));
      }
      run_matmul(m, two_threads);
      Recorder recorder(t.batch, s.rows, s.columns, two_threads.size());
      m.epilogue = &recorder;
      run_matmul(m, two_threads);
      int wrong = 0;
      for (std::int64_t n = 0; n < t.batch; ++n) {
        const auto at = static_cast<std::size_t>(n);
        for (std::int64_t i = 0; i < s.rows; ++i) {
          for (std::int64_t j = 0; j < s.columns; ++j) {
            double expected = 0;
            for (std::int64_t k = 0; k < s.inner; ++k) {
              expected += static_cast<double>(a[static_cast<std::size_t>(m.a_offsets[at] + i * m.a_row + k)]) *
                          b[static_cast<std::size_t>(m.b_offsets[at] + k * m.b_inner + j * m.b_column)];
            }
            const float got = c[static_cast<std::size_t>(m.c_offsets[at] + i * m.c_row + j)];
            if (!(std::abs(got - expected) <= tolerance(s.inner))) ++wrong;
            const auto place = static_cast<std::size_t>((n * s.rows + i) * s.columns + j);
            if (recorder.times[place] != 1 || recorder.values[place] != got) ++wrong;
          }
        }
        for (int i = 0; i < 3; ++i) {
          if (!std::isnan(c[static_cast<std::size_t>((n + 1) * (c_size + 3) - 1 - i)])) ++wrong;
        }
      }
      EXPECT_EQ(wrong, 0);
    }
  }
}

TEST_P(MatmulTest, TheNumberOfThreadsDoesNotChangeABit) {
  for (const Sizes& s : {Sizes{300, 500, 700}, Sizes{61, 1000, 400}, Sizes{1, 3000, 800}, Sizes{4, 1111, 900},
                         Sizes{1500, 2, 600}, Sizes{128, 10, 512}}) {
    for (const Layout b_layout : {Layout::Rows, Layout::Columns, Layout::Apart}) {
      const Matrix a(s.rows, s.inner, Layout::Rows, 9), b(s.inner, s.columns, b_layout, 10);
      std::vector<float> first;
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        std::vector<float> c(static_cast<std::size_t>(s.rows * s.columns), poison);
        Matmul m = product_of(a, b, s);
        m.c = c.data(), m.c_row = s.columns;
        run_matmul(m, pool);
        if (threads == 1) first = c;
        EXPECT_EQ(std::memcmp(first.data(), c.data(), c.size() * sizeof(float)), 0) << text(s) << ' ' << threads;
      }
    }
  }
}

TEST_P(MatmulTest, AnExceptionOfTheEpilogueComesOut) {
  class Throwing : public MatmulEpilogue {
    void apply(std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, const float*, std::int64_t,
               int) override {
      throw std::runtime_error("epilogue");
    }
  } throwing;
  const Sizes s{200, 300, 100};
  const Matrix a(s.rows, s.inner, Layout::Rows, 9), b(s.inner, s.columns, Layout::Rows, 10);
  Matmul m = product_of(a, b, s);
  m.epilogue = &throwing;
  EXPECT_THROW(run_matmul(m, two_threads), std::runtime_error);
  check(s, Layout::Rows, Layout::Rows, Layout::Rows, two_threads);
}

TEST_P(MatmulTest, SmallMatmul) {
  for (const Sizes& s : {Sizes{1, 1, 1}, Sizes{64, 64, 32}, Sizes{13, 31, 5}, Sizes{64, 37, 64}, Sizes{3, 100, 17},
                         Sizes{25, 16, 9}, Sizes{37, 65, 33}, Sizes{1, 64, 128}, Sizes{70, 3, 31}}) {
    for (const Layout a : layouts) {
      for (const Layout b : layouts) {
        check_small(s, a, b, false, 1);
        check_small(s, a, b, true, 0.25F);
      }
    }
  }
}

std::vector<std::int64_t> targets() {
  std::vector<std::int64_t> result;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) result.push_back(target);
  return result;
}
INSTANTIATE_TEST_SUITE_P(Targets, MatmulTest, testing::ValuesIn(targets()),
                         [](const auto& target) { return std::string(hwy::TargetName(target.param)); });

}  // namespace
}  // namespace jerboa::cpu
