/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for libFuzzer where there is none, and replays files: with arguments, each names an
 * input; without, inputs are strung together at random from pieces of RESP, and then spoilt.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define INPUTS 300000
#define INPUT_BYTES 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char *const pieces[] = {
    "+OK\r\n",    "-ERR no\r\n", ":12\r\n",   ":-7\r\n",  "$-1\r\n", "$3\r\nabc\r\n",
    "$0\r\n\r\n", "*2\r\n",      "*-1\r\n",   "*0\r\n",   "_\r\n",   "\r\n",
    "\r",         "\n",          "$99999999", "*1048576", "9",       "-",
    "-x\r\n",     "+",           "*1\r\n",
};

#define PIECES (sizeof(pieces) / sizeof(pieces[0]))

static uint64_t state = 1;

static uint64_t draw(uint64_t bound)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % bound;
}

static size_t compose(uint8_t *input)
{
	size_t bytes = 0;

	for (uint64_t left = 1 + draw(20); left > 0; left--) {
		const char *piece = pieces[draw(PIECES)];
		size_t length = strlen(piece);

		if (bytes + length > INPUT_BYTES)
			break;
		memcpy(input + bytes, piece, length);
		bytes += length;
	}
	while (bytes > 0 && draw(3) == 0)
		input[draw(bytes)] = (uint8_t)draw(256);
	return bytes;
}

static int replay(const char *path)
{
	static uint8_t input[1 << 20];
	FILE *file = fopen(path, "rb");

	if (!file)
		return 1;
	LLVMFuzzerTestOneInput(input, fread(input, 1, sizeof(input), file));
	return fclose(file);
}

int main(int argc, char **argv)
{
	uint8_t input[INPUT_BYTES];

	for (int i = 1; i < argc; i++)
		if (replay(argv[i]))
			return 1;
	for (int i = 0; argc == 1 && i < INPUTS; i++)
		LLVMFuzzerTestOneInput(input, compose(input));
	return 0;
}
