#include <jerboa/language/runner.h>

#include "language/cache_file.h"
#include "language/engine.h"

namespace jerboa::language {

Stream& Stream::operator=(Stream&& other) noexcept {
  std::swap(engine_, other.engine_);
  std::swap(state_, other.state_);
  return *this;
}

Stream::~Stream() {
  if (engine_ && !ended()) cancel();
}

std::optional<TextPiece> Stream::next() { return reported(engine_->next(*state_)); }

std::optional<TextPiece> Stream::take() { return reported(engine_->take(*state_)); }

std::optional<TextPiece> Stream::reported(std::optional<TextPiece> piece) const {
  if (state_->on_token && piece && piece->token) state_->on_token(*piece);
  return piece;
}

Generation Stream::wait(const OnText& on_text) {
  while (const std::optional<TextPiece> piece = next())
    if (on_text && !piece->text.empty()) on_text(piece->text);
  return result();
}

void Stream::cancel() { engine_->cancel(*state_); }

bool Stream::ended() const { return engine_->ended(*state_); }

Generation Stream::result() const { return engine_->result(*state_); }

ReservedBlocks::ReservedBlocks(std::shared_ptr<Engine> engine, serving::TextBlocks blocks)
    : engine_(std::move(engine)), blocks_(std::make_unique<serving::TextBlocks>(std::move(blocks))) {}

ReservedBlocks::~ReservedBlocks() {
  if (blocks_) engine_->give_back(std::move(blocks_));
}

Runner::Runner(std::shared_ptr<Model> model) : engine_(std::make_shared<Engine>(std::move(model))) {}

Stream Runner::submit(std::vector<std::int32_t> prompt, const GenerateOptions& options) {
  return engine_->submit(std::move(prompt), options);
}

Stream Runner::fork(const Stream& stream, const GenerateOptions& options) {
  return engine_->fork(*stream.state_, options);
}

bool Runner::poll(double seconds) { return engine_->poll(seconds); }

void Runner::draft_with(std::shared_ptr<Model> model) { engine_->draft_with(std::move(model)); }

ReservedBlocks Runner::reserve(std::int64_t tokens) { return engine_->reserve(tokens); }

std::int64_t Runner::save_cache(const std::filesystem::path& path, std::span<const std::int32_t> tokens) {
  return engine_->exclusively(
      [&](serving::Scheduler& scheduler) { return write_cache_file(path, tokens, scheduler, engine_->model()); });
}

std::int64_t Runner::load_cache(const std::filesystem::path& path) {
  return engine_->exclusively(
      [&](serving::Scheduler& scheduler) { return read_cache_file(path, scheduler, engine_->model()); });
}

void Runner::clear_cache() { engine_->clear_cache(); }

Statistics Runner::statistics() const { return engine_->statistics(); }

void Runner::start_trace() { engine_->start_trace(); }

void Runner::write_trace(const std::filesystem::path& path) const { engine_->write_trace(path); }

Model& Runner::model() const { return engine_->model(); }

}  // namespace jerboa::language
