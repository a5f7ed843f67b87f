#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <jerboa/base/atomic_file.h>
#include <jerboa/base/error.h>
#include <jerboa/base/file.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace jerboa {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::read_text;
using test::TempFolder;
using test::write_text;

std::size_t files_in(const TempFolder& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()));
}

TEST(FileContent, ShowsTheBytes) {
  const TempFolder folder;
  write_text(folder / "a", std::string_view("one\0two", 7));
  FileContent file(folder / "a");
  EXPECT_EQ(file.text(), std::string_view("one\0two", 7));
  EXPECT_EQ(file.bytes().size(), 7);
  EXPECT_EQ(file.path(), folder / "a");
}

TEST(FileContent, KeepsTheBytesInPlaceWhenMoved) {
  const TempFolder folder;
  write_text(folder / "a", "first");
  write_text(folder / "b", "second");
  FileContent a(folder / "a"), b(folder / "b");
  const auto* data = a.bytes().data();
  FileContent moved(std::move(a));
  EXPECT_EQ(moved.bytes().data(), data);
  b = std::move(moved);
  EXPECT_EQ(b.bytes().data(), data);
  EXPECT_EQ(b.text(), "first");
}

TEST(FileContent, ReadsAnEmptyFile) {
  const TempFolder folder;
  write_text(folder / "empty", "");
  EXPECT_TRUE(FileContent(folder / "empty").bytes().empty());
}

TEST(FileContent, RefusesOtherThanFiles) {
  const TempFolder folder;
  expect_error<FileError>([&] { FileContent(folder / "missing"); }, "missing: cannot open: No such file");
  expect_error<FileError>([&] { FileContent(folder.path()); }, "not a file");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error<FileError>([&] { FileContent(folder / "pipe"); }, "pipe: cannot open: not a file");
}

TEST(FileReader, ReadsAnyPart) {
  const TempFolder folder;
  write_text(folder / "a", "0123456789");
  FileReader other(folder / "a");
  FileReader file(std::move(other));
  EXPECT_EQ(file.size(), 10U);
  EXPECT_EQ(file.path(), folder / "a");
  std::string text(4, ' ');
  file.read(3, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "3456");
  file.read(10, {});
  expect_error<FileError>([&] { file.read(8, std::as_writable_bytes(std::span(text))); },
                          "a: ends at byte 10, but data up to byte 12 was expected");
}

TEST(FileReader, RefusesAFileThatBecomesShorter) {
  const TempFolder folder;
  write_text(folder / "a", std::string(100'000, 'x'));
  const FileReader file(folder / "a");
  fs::resize_file(folder / "a", 5000);
  std::string text(100'000, ' ');
  expect_error<FileError>(
      [&] { file.read(0, std::as_writable_bytes(std::span(text))); },
      "a: ends at byte 5000, but data up to byte 100000 was expected: it was truncated while being");
}

TEST(WriteFileAtomically, CreatesAndReplaces) {
  const TempFolder folder;
  write_file_atomically(folder / "a", "a long first version");
  EXPECT_EQ(read_text(folder / "a"), "a long first version");
  const std::string second = "second";
  const std::array pieces{std::as_bytes(std::span(second)), std::as_bytes(std::span(second))};
  write_file_atomically(folder / "a", pieces);
  EXPECT_EQ(read_text(folder / "a"), "secondsecond");
  EXPECT_EQ(files_in(folder), 1);
}

TEST(AtomicFile, AppearsWhenItIsCommitted) {
  const TempFolder folder;
  write_text(folder / "a", "old");
  const auto bytes_of = [](std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); };
  {
    AtomicFile file(folder / "a");
    file.write(bytes_of("discarded"));
  }
  EXPECT_EQ(read_text(folder / "a"), "old");
  AtomicFile file(folder / "a");
  file.write(bytes_of("new "));
  file.write(bytes_of("content"));
  EXPECT_EQ(read_text(folder / "a"), "old");
  file.commit();
  EXPECT_EQ(read_text(folder / "a"), "new content");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1) << "no temporary file";
}

TEST(WriteFileAtomically, KeepsThePermissionsOfTheOldFile) {
  const TempFolder folder;
  write_text(folder / "a", "old");
  fs::permissions(folder / "a", fs::perms::owner_read | fs::perms::group_read);
  write_file_atomically(folder / "a", "new");
  EXPECT_EQ(fs::status(folder / "a").permissions(), fs::perms::owner_read | fs::perms::group_read);
}

TEST(WriteFileAtomically, WritesThroughASymbolicLink) {
  const TempFolder folder;
  fs::create_directory(folder / "blobs");
  write_text(folder / "blobs/a", "old");
  fs::create_symlink("blobs/a", folder / "link");
  write_file_atomically(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_text(folder / "blobs/a"), "new");
}

TEST(WriteFileAtomically, WritesIntoTheCurrentFolder) {
  const TempFolder folder;
  const auto before = fs::current_path();
  fs::current_path(folder.path());
  write_file_atomically("a", "here");
  fs::current_path(before);
  EXPECT_EQ(read_text(folder / "a"), "here");
}

TEST(WriteFileAtomically, RefusesWhatIsNotAFile) {
  const TempFolder folder;
  expect_error<FileError>([&] { write_file_atomically(folder.path(), "x"); }, "cannot write: not a file");
  expect_error<FileError>([&] { write_file_atomically("/dev/null", "x"); }, "/dev/null: cannot write: not a file");
  expect_error<FileError>([&] { write_file_atomically(folder / "no/such/a", "x"); }, "No such file or directory");
}

TEST(WriteFileAtomically, LeavesAnOpenFileReadable) {
  const TempFolder folder;
  write_text(folder / "a", "old");
  const FileReader old(folder / "a");
  write_file_atomically(folder / "a", "new, and longer");
  std::string text(3, ' ');
  old.read(0, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "old");
  EXPECT_EQ(FileContent(folder / "a").text(), "new, and longer");
}

TEST(WriteFileAtomically, LeavesTheOldFileWhenTheDiskIsFull) {
  const TempFolder folder;
  write_text(folder / "a", "old");

  // A limit on file sizes makes a write fail half-way, like a full disk.
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 4096, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto message =
      test::message_of<FileError>([&] { write_file_atomically(folder / "a", std::string(1'000'000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);

  EXPECT_NE(message.find("a: cannot write: File too large"), std::string::npos) << message;
  EXPECT_EQ(read_text(folder / "a"), "old");
  EXPECT_EQ(files_in(folder), 1) << "the temporary file is gone";
}

TEST(WriteFileAtomically, WorksFromSeveralThreads) {
  const TempFolder folder;
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&folder, i] {
      for (int round = 0; round < 20; ++round) {
        write_file_atomically(folder / "shared", std::string(10'000, static_cast<char>('a' + i)));
        write_file_atomically(folder / std::to_string(i), std::to_string(round));
      }
    });
  }
  for (auto& writer : writers) writer.join();
  const std::string content = read_text(folder / "shared");
  EXPECT_EQ(content, std::string(10'000, content.at(0)));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(read_text(folder / std::to_string(i)), "19");
  EXPECT_EQ(files_in(folder), 5);
}

TEST(WriteFileAtomically, LeavesTheOldFileOrTheNewOneAfterACrash) {
  const TempFolder folder;
  const std::string versions[] = {std::string(3'000'000, 'a'), std::string(5'000'000, 'b')};
  write_file_atomically(folder / "a", versions[0]);
  for (int round = 0; round < 30; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        for (int i = 1;; ++i) write_file_atomically(folder / "a", versions[i % 2]);
      } catch (...) {
        ::_exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500 * round));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "writing failed before the crash";
    const std::string content = read_text(folder / "a");
    ASSERT_TRUE(content == versions[0] || content == versions[1]) << content.size() << " bytes";
  }
}

}  // namespace
}  // namespace jerboa
