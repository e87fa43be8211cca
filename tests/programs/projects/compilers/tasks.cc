// C++: tasks, exceptions across threads, a file system walk.
#include <filesystem>
#include <future>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <vector>

int main() {
  std::vector<std::future<long>> sums;
  for (long part = 0; part < 8; part++)
    sums.push_back(std::async(std::launch::async, [part] {
      std::vector<long> numbers(1000);
      std::iota(numbers.begin(), numbers.end(), part * 1000);
      return std::accumulate(numbers.begin(), numbers.end(), 0L);
    }));
  long sum = 0;
  for (auto &part : sums) sum += part.get();
  auto failing = std::async(std::launch::async, [] { throw std::runtime_error("thrown"); });
  try {
    failing.get();
  } catch (const std::runtime_error &error) {
    std::cout << sum << ' ' << error.what() << ' ' << std::filesystem::exists("tasks.cc") << '\n';
  }
}
