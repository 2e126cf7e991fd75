// Globals that constructors of other globals use, in one translation unit and before main: nothing is reported.
#include <string>
#include <vector>

#include "support.h"

extern std::vector<int> late;
static int table[10] = {1, 2, 3};

struct First {
  First() {
    for (int& value : table) value += 1;
    name = "first";
    words.resize(100, table[9]);
  }
  std::string name;
  std::vector<int> words;
};

__attribute__((init_priority(101))) First very_early;
static First usual;
std::vector<int> late(50, very_early.words[99]);
thread_local std::string per_thread(40, 'p');

int main() {
  EXPECT(very_early.name == "first" && usual.words.size() == 100);
  EXPECT(late[49] == 1 && table[0] == 3);
  EXPECT(per_thread[39] == 'p');
  static First local;
  EXPECT(local.words[0] == 3);
  puts("ok");
}
