#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <utility>

#include <jerboa/base/file.h>
#include <jerboa/base/random.h>
#include <jerboa/frontend/data.h>
#include <jerboa/io/idx.h>

namespace jerboa {

Batch& BatchRange::at(std::int64_t number) {
  if (number != current_) {
    batch_ = make_(number);
    current_ = number;
  }
  return batch_;
}

// TextData

TextData::TextData(const std::filesystem::path& file, TextDataOptions options)
    : TextData(from_text(FileContent(file).text(), options)) {}

TextData TextData::from_text(std::string_view text, TextDataOptions options) {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return {std::move(ids), options};
}

TextData::TextData(std::vector<std::int32_t> ids, TextDataOptions options)
    : ids_(std::make_shared<const std::vector<std::int32_t>>(std::move(ids))), options_(options) {
  if (options_.batch < 1 || options_.length < 1)
    throw UsageError(
        fmt::format("TextData: batch {} and length {} must be at least 1", options_.batch, options_.length));
  if (ids_->size() < static_cast<std::size_t>(options_.length) + 1)
    throw UsageError(fmt::format("TextData: {} tokens are too few for a window of {} and its targets", ids_->size(),
                                 options_.length));
}

Batch TextData::batch(std::int64_t number) const {
  SplitMix random(options_.seed * 0x2545f4914f6cdd1du + static_cast<std::uint64_t>(number));
  random.next();  // adjacent batch numbers start from adjacent states
  const auto length = static_cast<std::size_t>(options_.length);
  HostTensor ids(DType::i32, {options_.batch, options_.length}), targets = ids;
  for (int row = 0; row < options_.batch; ++row) {
    const auto start = static_cast<std::ptrdiff_t>(random.below(ids_->size() - length));
    const auto at = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * length);
    std::copy_n(ids_->begin() + start, length, ids.as<std::int32_t>().begin() + at);
    std::copy_n(ids_->begin() + start + 1, length, targets.as<std::int32_t>().begin() + at);
  }
  return {{"ids", std::move(ids)}, {"targets", std::move(targets)}};
}

BatchRange TextData::batches(std::int64_t count) const {
  return {count, [data = *this](std::int64_t number) { return data.batch(number); }};
}

// ImageData

ImageData::ImageData(const std::filesystem::path& images, const std::filesystem::path& labels, ImageDataOptions options)
    : ImageData(FileContent(images).bytes(), images.string(), FileContent(labels).bytes(), labels.string(), options) {}

ImageData ImageData::from_bytes(std::span<const std::byte> images, std::span<const std::byte> labels,
                                ImageDataOptions options) {
  return {images, "images", labels, "labels", options};
}

ImageData::ImageData(std::span<const std::byte> images, const std::string& images_name,
                     std::span<const std::byte> labels, const std::string& labels_name, ImageDataOptions options)
    : options_(options) {
  const IdxBytes pixels = parse_idx(images, 3, images_name), classes = parse_idx(labels, 1, labels_name);
  if (pixels.shape[0] != classes.shape[0])
    throw FileError(fmt::format("{} holds {} images, but {} holds {} labels", images_name, pixels.shape[0], labels_name,
                                classes.shape[0]));
  for (const std::int64_t size : {pixels.shape[1], pixels.shape[2]})
    if (size < 1 || !std::in_range<int>(size))
      throw FileError(fmt::format("{}: images of {} by {} pixels", images_name, pixels.shape[1], pixels.shape[2]));
  count_ = pixels.shape[0];
  height_ = static_cast<int>(pixels.shape[1]);
  width_ = static_cast<int>(pixels.shape[2]);
  pixels_ = std::make_shared<const std::vector<std::uint8_t>>(pixels.values.begin(), pixels.values.end());
  labels_ = std::make_shared<const std::vector<std::uint8_t>>(classes.values.begin(), classes.values.end());
  if (options_.batch < 1)
    throw UsageError(fmt::format("ImageData: a batch must have at least one image, not {}", options_.batch));
  if (options_.batch > count_)
    throw UsageError(fmt::format("ImageData: a batch of {} needs more than {} images", options_.batch, count_));
}

Batch ImageData::gather(const std::vector<std::int64_t>& which) const {
  const auto count = static_cast<std::int64_t>(which.size());
  const std::int64_t area = std::int64_t{height_} * width_;
  HostTensor images(DType::f32, {count, 1, height_, width_}), labels(DType::i32, {count});
  const auto out = images.as<float>();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t from = which[static_cast<std::size_t>(i)];
    for (std::int64_t p = 0; p < area; ++p)
      out[static_cast<std::size_t>(i * area + p)] =
          static_cast<float>((*pixels_)[static_cast<std::size_t>(from * area + p)]) / 255.0f;
    labels.as<std::int32_t>()[static_cast<std::size_t>(i)] = (*labels_)[static_cast<std::size_t>(from)];
  }
  return {{"images", std::move(images)}, {"labels", std::move(labels)}};
}

Batch ImageData::range(std::int64_t first, std::int64_t count) const {
  if (first < 0 || count < 0 || first > count_ - count)
    throw UsageError(
        fmt::format("ImageData: images {} to {} are out of range: there are {}", first, first + count, count_));
  std::vector<std::int64_t> which(static_cast<std::size_t>(count));
  std::iota(which.begin(), which.end(), first);
  return gather(which);
}

BatchRange ImageData::epoch(std::int64_t number) const {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count_));
  std::iota(order.begin(), order.end(), 0);
  SplitMix random(options_.seed * 0x2545f4914f6cdd1du + static_cast<std::uint64_t>(number) + 1);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return {count_ / options_.batch, [data = *this, order = std::move(order)](std::int64_t batch) {
            const auto first = order.begin() + batch * data.options_.batch;
            return data.gather({first, first + data.options_.batch});
          }};
}

}  // namespace jerboa
