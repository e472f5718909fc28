// SPDX-License-Identifier: Apache-2.0
#include "symbols.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__asm__(".section .rodata\n"
	"builtin_symbols:\n"
	".incbin \"" SYMBOLS_FILE "\"\n"
	".byte 0\n"
	".previous\n");

extern const char builtin_symbols[];

static int parse_line(struct symbols *symbols, const char *line)
{
	struct symbol symbol = {0};

	line += strspn(line, " \t");
	if (!*line || *line == '#')
		return 0;
	if (symbols->count == MAX_SYMBOLS ||
	    sscanf(line, "%63s %u %63[^\n]", symbol.name, &symbol.address_place, symbol.label) !=
		3 ||
	    symbol.address_place > SYMBOL_PLACES)
		return -1;
	symbols->list[symbols->count++] = symbol;
	return 0;
}

int symbols_parse(struct symbols *symbols, const char *text)
{
	char line[256];
	int number = 0;

	symbols->count = 0;
	while (*text) {
		size_t length = strcspn(text, "\n");

		number++;
		if (length >= sizeof(line))
			return number;
		memcpy(line, text, length);
		line[length] = '\0';
		if (parse_line(symbols, line))
			return number;
		text += length + (text[length] == '\n');
	}
	return 0;
}

int symbols_read(struct symbols *symbols, const char *path)
{
	char text[16384];
	size_t length;
	FILE *file;

	if (!path)
		return symbols_parse(symbols, builtin_symbols);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	length = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[length] = '\0';
	return symbols_parse(symbols, text);
}
