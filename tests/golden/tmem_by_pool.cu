#if __CUDA_ARCH__ >= 900
#define LAUNCH_SHAPE(threads) __block_size__((threads, 1, 1))
#else
#define LAUNCH_SHAPE(threads) __launch_bounds__(threads)
#endif
extern "C" __global__ void LAUNCH_SHAPE(128) tmem_by_pool(const float* __restrict__ A_ptr, float* __restrict__ B_ptr) {
    const int tx = threadIdx.x;
    const int warp = tx >> 5;
    float r_ptr[8];
    extern __shared__ __align__(16) unsigned char smem_ptr[];
    unsigned int* const tmem_addr_ptr = (unsigned int*)smem_ptr;
    if (warp == 0) {
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" : : "r"((unsigned int)__cvta_generic_to_shared(&tmem_addr_ptr[0])), "r"(64u) : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" : : : "memory");
    }
    asm volatile("tcgen05.fence::before_thread_sync;" : : : "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" : : : "memory");
    const unsigned int tmem_base = tmem_addr_ptr[0];
    r_ptr[0] = A_ptr[tx * 8];
    r_ptr[1] = A_ptr[tx * 8 + 1];
    r_ptr[2] = A_ptr[tx * 8 + 2];
    r_ptr[3] = A_ptr[tx * 8 + 3];
    r_ptr[4] = A_ptr[tx * 8 + 4];
    r_ptr[5] = A_ptr[tx * 8 + 5];
    r_ptr[6] = A_ptr[tx * 8 + 6];
    r_ptr[7] = A_ptr[tx * 8 + 7];
    asm volatile("tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" : : "r"(tmem_base + ((unsigned int)warp << 21) + 40u), "f"(r_ptr[0]), "f"(r_ptr[1]), "f"(r_ptr[2]), "f"(r_ptr[3]), "f"(r_ptr[4]), "f"(r_ptr[5]), "f"(r_ptr[6]), "f"(r_ptr[7]) : "memory");
    asm volatile("tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" : : "r"(tmem_base + ((unsigned int)warp << 21)), "f"(r_ptr[0]), "f"(r_ptr[1]), "f"(r_ptr[2]), "f"(r_ptr[3]), "f"(r_ptr[4]), "f"(r_ptr[5]), "f"(r_ptr[6]), "f"(r_ptr[7]) : "memory");
    asm volatile("tcgen05.wait::st.sync.aligned;" : : : "memory");
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];" : "=f"(r_ptr[0]), "=f"(r_ptr[1]), "=f"(r_ptr[2]), "=f"(r_ptr[3]), "=f"(r_ptr[4]), "=f"(r_ptr[5]), "=f"(r_ptr[6]), "=f"(r_ptr[7]) : "r"(tmem_base + ((unsigned int)warp << 21) + 40u) : "memory");
    asm volatile("tcgen05.wait::ld.sync.aligned;" : : : "memory");
    B_ptr[tx * 8] = r_ptr[0] + 1.0f;
    B_ptr[tx * 8 + 1] = r_ptr[1] + 1.0f;
    B_ptr[tx * 8 + 2] = r_ptr[2] + 1.0f;
    B_ptr[tx * 8 + 3] = r_ptr[3] + 1.0f;
    B_ptr[tx * 8 + 4] = r_ptr[4] + 1.0f;
    B_ptr[tx * 8 + 5] = r_ptr[5] + 1.0f;
    B_ptr[tx * 8 + 6] = r_ptr[6] + 1.0f;
    B_ptr[tx * 8 + 7] = r_ptr[7] + 1.0f;
    asm volatile("tcgen05.fence::before_thread_sync;" : : : "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" : : : "memory");
    if (warp == 0) {
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" : : "r"(tmem_base), "r"(64u) : "memory");
    }
}
