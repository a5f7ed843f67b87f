#include <gtest/gtest.h>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/frontend/data.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace jerboa {
namespace {

using test::expect_error;

TEST(TextData, GivesWindowsWithTheirNextTokens) {
  const std::string text = "the quick brown fox jumps over the lazy dog";
  const TextData data = TextData::from_text(text, {.batch = 3, .length = 5});
  EXPECT_EQ(data.size(), text.size());
  for (auto& batch : data.batches(20)) {
    const HostTensor &ids = batch.at("ids"), &targets = batch.at("targets");
    EXPECT_EQ(ids.shape(), (Sizes{3, 5}));
    for (std::size_t row = 0; row < 3; ++row) {
      std::string window;
      for (std::size_t t = 0; t < 5; ++t) window += static_cast<char>(ids.i32()[row * 5 + t]);
      window += static_cast<char>(targets.i32()[row * 5 + 4]);
      EXPECT_NE(text.find(window), std::string::npos) << window;
      for (std::size_t t = 0; t + 1 < 5; ++t) EXPECT_EQ(targets.i32()[row * 5 + t], ids.i32()[row * 5 + t + 1]);
    }
  }
}

TEST(TextData, IsReproducibleAndCoversTheText) {
  const TextData data = TextData::from_text("abcdefghij", {.batch = 4, .length = 3, .seed = 5});
  EXPECT_EQ(data.batch(17), TextData::from_text("abcdefghij", {.batch = 4, .length = 3, .seed = 5}).batch(17));
  EXPECT_NE(data.batch(17), data.batch(18));
  EXPECT_NE(data.batch(17), TextData::from_text("abcdefghij", {.batch = 4, .length = 3, .seed = 6}).batch(17));
  std::set<std::int32_t> starts;
  for (int number = 0; number < 100; ++number)
    for (std::size_t row = 0; row < 4; ++row) {
      const Batch batch = data.batch(number);
      starts.insert(batch.at("ids").i32()[row * 3] - 'a');
    }
  EXPECT_EQ(starts, (std::set<std::int32_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(TextData, ReadsFilesAndBytesAboveAscii) {
  const test::TempFolder folder;
  test::write_text(folder / "text.txt", "\xff\xfe\xff\xfe");
  const TextData data(folder / "text.txt", {.batch = 1, .length = 3});
  const Batch batch = data.batch(0);
  EXPECT_EQ(batch.at("ids").i32()[0], 255);
  EXPECT_EQ(batch.at("targets").i32()[2], 254);
  expect_error<FileError>([&] { TextData(folder / "none.txt"); }, "none.txt");
}

TEST(TextData, BatchesOutliveIt) {
  BatchRange range = TextData::from_text("abcdefgh", {.batch = 1, .length = 2}).batches(3);
  int count = 0;
  for (auto& batch : range) count += batch.at("ids").shape() == Sizes{1, 2} ? 1 : 0;
  EXPECT_EQ(count, 3);
}

TEST(TextData, RefusesTooLittleText) {
  EXPECT_NO_THROW(TextData::from_text("abcd", {.batch = 1, .length = 3}));
  expect_error<UsageError>([] { TextData::from_text("abc", {.batch = 1, .length = 3}); },
                           "3 tokens are too few for a window of 3");
  expect_error<UsageError>([] { TextData::from_text("abc", {.batch = 0, .length = 1}); },
                           "batch 0 and length 1 must be at least 1");
}

// IDX

std::string header(std::initializer_list<unsigned> sizes) {
  std::string text{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  for (const unsigned size : sizes)
    for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(size >> shift & 0xffu);
  return text;
}

class ImageFiles : public testing::Test {
 protected:
  // Five images of 2 x 3 pixels; the first pixel of image i is 51 * i, and its label is i + 1.
  void SetUp() override {
    std::string pixels = header({5, 2, 3}), labels = header({5});
    for (int i = 0; i < 5; ++i) {
      pixels += static_cast<char>(51 * i) + std::string(5, '\xff');
      labels += static_cast<char>(i + 1);
    }
    write(pixels, labels);
  }
  void write(std::string_view pixels, std::string_view labels) {
    test::write_text(folder / "images", pixels);
    test::write_text(folder / "labels", labels);
  }
  ImageData open(int batch = 2) const { return {folder / "images", folder / "labels", {.batch = batch, .seed = 1}}; }

  test::TempFolder folder;
};

TEST_F(ImageFiles, AreReadInOrder) {
  const ImageData data = open();
  EXPECT_EQ(data.size(), 5);
  EXPECT_EQ(data.height(), 2);
  EXPECT_EQ(data.width(), 3);
  const Batch batch = data.range(3, 2);
  EXPECT_EQ(batch.at("images").shape(), (Sizes{2, 1, 2, 3}));
  EXPECT_FLOAT_EQ(batch.at("images").f32()[0], 0.6f);
  EXPECT_FLOAT_EQ(batch.at("images").f32()[1], 1.0f);
  EXPECT_EQ(batch.at("labels").i32()[1], 5);
  expect_error<UsageError>([&] { data.range(4, 2); }, "images 4 to 6 are out of range: there are 5");
  expect_error<UsageError>([&] { data.range(-1, 2); }, "are out of range");
}

TEST_F(ImageFiles, AreShuffledAnewInEachEpoch) {
  const auto order = [](BatchRange epoch) {
    std::vector<std::int32_t> labels;
    for (auto& batch : epoch) {
      const auto batch_labels = batch.at("labels").i32();
      for (std::size_t i = 0; i < batch_labels.size(); ++i) {
        labels.push_back(batch_labels[i]);
        EXPECT_FLOAT_EQ(batch.at("images").f32()[6 * i], static_cast<float>(batch_labels[i] - 1) / 5);
      }
    }
    return labels;
  };
  const ImageData data = open(1);
  std::set<std::vector<std::int32_t>> orders;
  for (int epoch = 0; epoch < 4; ++epoch) {
    const auto labels = order(data.epoch(epoch));
    EXPECT_EQ(std::set<std::int32_t>(labels.begin(), labels.end()), (std::set<std::int32_t>{1, 2, 3, 4, 5}));
    EXPECT_EQ(labels, order(open(1).epoch(epoch)));  // the batches outlive the data object
    orders.insert(labels);
  }
  EXPECT_GT(orders.size(), 1u);
  EXPECT_EQ(order(open(2).epoch()).size(), 4u);  // the fifth is dropped
}

TEST_F(ImageFiles, ThatAreMalformedAreRefused) {
  const std::string pixels = test::read_text(folder / "images"), labels = test::read_text(folder / "labels");
  const auto refuses = [&](std::string_view images_content, std::string_view labels_content, std::string_view part) {
    write(images_content, labels_content);
    expect_error<FileError>([&] { open(); }, part);
  };
  refuses("", labels, "images: not an IDX file of bytes with 3 axes");
  refuses(labels, labels, "images: not an IDX file of bytes with 3 axes");
  refuses(pixels, pixels, "labels: not an IDX file of bytes with 1 axes");
  refuses(std::string(4, '\x1f') + pixels, labels, "images: not an IDX file");
  refuses(pixels.substr(0, pixels.size() - 1), labels, "images: the sizes in the header need more than the file's");
  refuses(pixels + "x", labels, "images: the header specifies 30 values, but the file holds 31");
  refuses(header({0xffffffffu, 0xffffffffu, 0xffffffffu}) + "x", labels, "need more than the file's");
  refuses(pixels, header({4}) + "abcd", "holds 5 images");
  write(pixels, labels);
  expect_error<UsageError>([&] { open(6); }, "a batch of 6 needs more than 5 images");
  expect_error<UsageError>([&] { open(0); }, "a batch must have at least one image, not 0");
  expect_error<FileError>([&] { ImageData(folder / "none", folder / "labels"); }, "none");
  const auto from_bytes = [&](const std::string& images) {
    return ImageData::from_bytes(std::as_bytes(std::span(images)), std::as_bytes(std::span(labels)), {.batch = 2});
  };
  EXPECT_EQ(from_bytes(pixels).size(), 5);
  const std::string no_pixels("\0\0\x08\x03\0\0\0\x05\0\0\0\0\xff\xff\xff\xff", 16);
  expect_error<FileError>([&] { from_bytes(no_pixels); }, "images: images of 0 by 4294967295 pixels");
}

}  // namespace
}  // namespace jerboa
