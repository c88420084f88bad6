/* The pages of a GPU that blocks lie on. */
#ifndef PSG_PAGES_H
#define PSG_PAGES_H

#include "table.h"

/* The bytes of a page, and those of all pages that a block takes which begins at one; UINT64_MAX: more than there are. */
uint64_t psg_page(int gpu);
uint64_t psg_whole_pages(int gpu, uint64_t bytes);

/* A block lies at an address from now on, or no more. Returns the bytes of pages on which no other one lies. */
uint64_t psg_block_placed(int gpu, uint64_t address, uint64_t bytes);
uint64_t psg_block_gone(int gpu, uint64_t address, uint64_t bytes);

/* Gives back what a block alone took, which has been freed. */
void psg_block_give(const struct psg_entry *block);

#endif
