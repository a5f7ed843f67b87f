#include <algorithm>
#include <fmt/format.h>
#include <numeric>

#include <jerboa/base/file.h>
#include <jerboa/base/random.h>
#include <jerboa/frontend/data.h>

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
    : TextData(from_text(MappedFile(file).text(), options)) {}

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
  random.next();  // neighbouring numbers start from neighbouring states
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
  return {count, [own = *this](std::int64_t number) { return own.batch(number); }};
}

// ImageData

namespace {

// An IDX file of bytes: two zero bytes, the type 0x08, the number of axes, their sizes as big-endian 32-bit numbers.
struct Idx {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;
};

Idx read_idx(const std::filesystem::path& path, std::size_t axes) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const auto byte = [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
  const std::size_t header = 4 + 4 * axes;
  if (bytes.size() < header || byte(0) != 0 || byte(1) != 0 || byte(2) != 8 || byte(3) != axes)
    throw FileError(fmt::format("{}: not an IDX file of bytes with {} axes", path.string(), axes));
  Idx idx;
  std::size_t count = 1;
  for (std::size_t i = 0; i < axes; ++i) {
    const std::size_t at = 4 + 4 * i;
    const std::size_t size = byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3);
    idx.shape.push_back(static_cast<std::int64_t>(size));
    if (size != 0 && count > (bytes.size() - header) / size)
      throw FileError(
          fmt::format("{}: the sizes in the header need more than the file's {} bytes", path.string(), bytes.size()));
    count *= size;
  }
  if (count != bytes.size() - header)
    throw FileError(fmt::format("{}: the header tells of {} values, the file holds {}", path.string(), count,
                                bytes.size() - header));
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  idx.values.assign(data + header, data + bytes.size());
  return idx;
}

}  // namespace

ImageData::ImageData(const std::filesystem::path& images, const std::filesystem::path& labels, ImageDataOptions options)
    : options_(options) {
  Idx image_file = read_idx(images, 3), label_file = read_idx(labels, 1);
  if (image_file.shape[0] != label_file.shape[0])
    throw FileError(fmt::format("{} holds {} images, {} {} labels", images.string(), image_file.shape[0],
                                labels.string(), label_file.shape[0]));
  count_ = image_file.shape[0];
  height_ = static_cast<int>(image_file.shape[1]);
  width_ = static_cast<int>(image_file.shape[2]);
  pixels_ = std::make_shared<const std::vector<std::uint8_t>>(std::move(image_file.values));
  labels_ = std::make_shared<const std::vector<std::uint8_t>>(std::move(label_file.values));
  if (options_.batch < 1 || options_.batch > count_)
    throw UsageError(fmt::format("ImageData: a batch of {} does not fit {} images", options_.batch, count_));
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
    throw UsageError(fmt::format("ImageData: images {} to {} are not among the {}", first, first + count, count_));
  std::vector<std::int64_t> which(static_cast<std::size_t>(count));
  std::iota(which.begin(), which.end(), first);
  return gather(which);
}

BatchRange ImageData::epoch(std::int64_t number) const {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count_));
  std::iota(order.begin(), order.end(), 0);
  SplitMix random(options_.seed * 0x2545f4914f6cdd1du + static_cast<std::uint64_t>(number) + 1);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return {count_ / options_.batch, [own = *this, order = std::move(order)](std::int64_t batch) {
            const auto first = order.begin() + batch * own.options_.batch;
            return own.gather({first, first + own.options_.batch});
          }};
}

}  // namespace jerboa
