#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/frontend/trainer.h>

namespace jerboa {

/// A counted sequence of batches, made one at a time: for (auto& batch : data.batches(100)) …
class BatchRange {
 public:
  using Make = std::function<Batch(std::int64_t number)>;
  BatchRange(std::int64_t count, Make make) : count_(count), make_(std::move(make)) {}

  class Iterator {
   public:
    Iterator(BatchRange* range, std::int64_t number) : range_(range), number_(number) {}
    Batch& operator*() const { return range_->at(number_); }
    Iterator& operator++() {
      ++number_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return number_ != other.number_; }

   private:
    BatchRange* range_;
    std::int64_t number_;
  };
  Iterator begin() { return {this, 0}; }
  Iterator end() { return {this, count_}; }

 private:
  Batch& at(std::int64_t number);

  std::int64_t count_;
  Make make_;
  std::int64_t current_ = -1;
  Batch batch_;
};

struct TextDataOptions {
  int batch = 8, length = 128;
  std::uint64_t seed = 0;
};

/// Random windows of a text: "ids" and "targets", i32[batch, length], with the targets shifted by one token. Tokens are
/// the text's bytes unless ids are given.
class TextData {
 public:
  explicit TextData(const std::filesystem::path& file, TextDataOptions options = {});
  TextData(std::vector<std::int32_t> ids, TextDataOptions options = {});
  static TextData from_text(std::string_view text, TextDataOptions options = {});

  /// Reproducible: batch n depends only on the seed and n.
  BatchRange batches(std::int64_t count) const;
  Batch batch(std::int64_t number) const;
  std::size_t size() const { return ids_->size(); }

 private:
  std::shared_ptr<const std::vector<std::int32_t>> ids_;  // shared with iterators over batches
  TextDataOptions options_;
};

struct ImageDataOptions {
  int batch = 128;
  std::uint64_t seed = 0;
};

/// Images with labels from a pair of IDX files, the format of MNIST: "images" f32[batch, 1, height, width] from 0 to 1,
/// and "labels" i32[batch].
class ImageData {
 public:
  ImageData(const std::filesystem::path& images, const std::filesystem::path& labels, ImageDataOptions options = {});
  /// The same from files in memory, which are copied.
  static ImageData from_bytes(std::span<const std::byte> images, std::span<const std::byte> labels,
                              ImageDataOptions options = {});

  /// Batches over all images, reshuffled for each epoch; an incomplete batch at its end is dropped.
  BatchRange epoch(std::int64_t number = 0) const;
  /// The images [first, first + count), in file order.
  Batch range(std::int64_t first, std::int64_t count) const;
  std::int64_t size() const { return count_; }
  int height() const { return height_; }
  int width() const { return width_; }

 private:
  ImageData(std::span<const std::byte> images, const std::string& images_name, std::span<const std::byte> labels,
            const std::string& labels_name, ImageDataOptions options);
  Batch gather(const std::vector<std::int64_t>& which) const;

  ImageDataOptions options_;
  std::int64_t count_ = 0;
  int height_ = 0, width_ = 0;
  std::shared_ptr<const std::vector<std::uint8_t>> pixels_, labels_;
};

}  // namespace jerboa
