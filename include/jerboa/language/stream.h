#pragma once

#include <memory>
#include <optional>

#include <jerboa/language/generation.h>

namespace jerboa::language {

class Engine;
struct StreamState;

/// A text that a Runner generates. Move-only; destroying a stream before its text has ended cancels it.
class Stream {
 public:
  Stream() = default;
  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream();

  /// The next piece, once there is one; none when the text has ended. While waiting it runs steps for all streams of
  /// the runner, unless another thread already does.
  std::optional<TextPiece> next();
  /// A piece that is already available, without waiting or running anything.
  std::optional<TextPiece> take();
  /// The whole text, once it has ended. `on_text` receives the pieces that were not taken before.
  Generation wait(const OnText& on_text = {});
  /// Ends the text at once.
  void cancel();
  /// Whether the text has ended; pieces of it may be left to take.
  bool ended() const;
  /// The text so far, with all statistics once it has ended.
  Generation result() const;

 private:
  friend class Runner;
  friend class Engine;
  Stream(std::shared_ptr<Engine> engine, std::shared_ptr<StreamState> state)
      : engine_(std::move(engine)), state_(std::move(state)) {}
  /// Calls on_token, then returns the piece.
  std::optional<TextPiece> reported(std::optional<TextPiece> piece) const;

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<StreamState> state_;
};

}  // namespace jerboa::language
