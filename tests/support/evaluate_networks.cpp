// The forward pass as a program, for CPUs that this machine is not: `evaluate NETWORK POSITIONS` writes logits, then values, in float16.
#include <cstdio>
#include <fstream>
#include <iterator>

#include "network.hpp"

static std::vector<char> read(const char* path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

int main(int, char** paths) {
    const std::vector<char> description = read(paths[1]), packed = read(paths[2]);
    azq::nn::Network network;
    const std::string broken = azq::nn::read_network(reinterpret_cast<const std::byte*>(description.data()), description.size(), network);
    if (!broken.empty()) return std::fputs(broken.c_str(), stderr);
    const azq::nn::Shape& shape = network.shape;
    const std::size_t count = packed.size() / static_cast<std::size_t>(shape.packed_size());
    std::vector<azq::Half> logits(count * static_cast<std::size_t>(shape.actions)), values(count * static_cast<std::size_t>(shape.values));
    azq::nn::Workspace space(network);
    azq::nn::forward(network, space, reinterpret_cast<const std::uint8_t*>(packed.data()), count, logits.data(), values.data());
    for (const auto* outputs : {&logits, &values}) std::fwrite(outputs->data(), sizeof(azq::Half), outputs->size(), stdout);
}
