#include <gtest/gtest.h>

#include <jerboa/base/error.h>

namespace jerboa {
namespace {

TEST(CallSite, NamesTheFileWithoutItsFolders) {
  EXPECT_EQ((CallSite{"/home/someone/model.cpp", 41}.str()), "model.cpp:41");
  EXPECT_EQ((CallSite{"model.cpp", 7}.str()), "model.cpp:7");
}

TEST(CallSite, IsEmptyWhereNothingIsKnown) { EXPECT_EQ(CallSite{}.str(), ""); }

}  // namespace
}  // namespace jerboa
