/* Routing of votes v_ij = W_ij p_i that exist in the first cache only; the formulas are in the Python modules.

A call handles some images. Its sizes are constants of the compilation, so that the innermost loops, over the parents,
are unrolled and vectorised:

DOUBLE: else numbers are single. J parents; W_ij is Z x Y, a child Y x X, a vote Z x X. FLOOR: of a Gaussian's weight.
PLACES: positions of the kernel that are handled together, one child after the other, so that its matrix is read once.

Parents' tensors are [place][X * Z][J], matrices [K * I][Y][Z * J], children [H][W][I][Y][X] of each image, activations
[H][W][I]. Dynamic routing has its own layouts, see below.
*/
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined __AVX512F__ && !defined __clang__
#pragma GCC target("prefer-vector-width=512")
#endif

#ifdef DOUBLE
typedef double NUMBER;
typedef int64_t BITS;
#define ROUND rint
#else
typedef float NUMBER;
typedef int32_t BITS;
#define ROUND rintf
#endif

enum { D = X * Z, V = X * Z * J, C = Y * X, M = Y * Z * J };

typedef struct {
    long images, height, width, types;   /* of the children */
    long out_height, out_width;          /* of the parents */
    long kernel, stride;
} Grid;

/* The numbers of the children under position k of the kernel, at some places; `place` counts over all images. */
static long child(const Grid *g, long place, long k) {
    long area = g->out_height * g->out_width, image = place / area, rest = place % area;
    long row = rest / g->out_width * g->stride + k / g->kernel, column = rest % g->out_width * g->stride + k % g->kernel;
    return ((image * g->height + row) * g->width + column) * g->types;
}

/* votes[x][z][j] = sum over y of matrix[y][z][j] child[y][x] */
static inline void vote(const NUMBER *restrict matrix, const NUMBER *restrict pose, NUMBER *restrict votes) {
    for (int x = 0; x < X; x++)
        for (int v = 0; v < Z * J; v++) {
            NUMBER sum = 0;
            for (int y = 0; y < Y; y++) sum += matrix[y * Z * J + v] * pose[y * X + x];
            votes[x * Z * J + v] = sum;
        }
}

/* Adds the gradients by matrix and child from that by votes. */
static inline void unvote(const NUMBER *restrict matrix, const NUMBER *restrict pose, const NUMBER *restrict grad_votes,
                          NUMBER *restrict grad_matrix, NUMBER *restrict grad_pose) {
    for (int y = 0; y < Y; y++)
        for (int v = 0; v < Z * J; v++) {
            NUMBER sum = 0;
            for (int x = 0; x < X; x++) sum += grad_votes[x * Z * J + v] * pose[y * X + x];
            grad_matrix[y * Z * J + v] += sum;
        }
    for (int y = 0; y < Y; y++)
        for (int x = 0; x < X; x++) {
            NUMBER sum = 0;
            for (int v = 0; v < Z * J; v++) sum += matrix[y * Z * J + v] * grad_votes[x * Z * J + v];
            grad_pose[y * X + x] += sum;
        }
}

/* products[j] = sum over d of a[d][j] b[d][j] */
static inline void products(const NUMBER *restrict a, const NUMBER *restrict b, NUMBER *restrict sums) {
    NUMBER sum[J] = {0};
    for (int d = 0; d < D; d++)
        for (int j = 0; j < J; j++) sum[j] += a[d * J + j] * b[d * J + j];
    memcpy(sums, sum, sizeof sum);
}

/* e^x for x <= 0, to rounding; 0 where it would be less than 1e-34, which spares denormal numbers. Unlike the
   library's, a compiler can vectorise it. */
static inline NUMBER power(NUMBER x) {
    enum { TERMS = sizeof(NUMBER) == 4 ? 7 : 13 }; /* of e^f with f at most log(2) / 2 */
    union { NUMBER number; BITS bits; } scale;
    NUMBER bounded = x < -78 ? -78 : x, whole = ROUND(bounded * (NUMBER)1.4426950408889634);
    NUMBER f = bounded - whole * (NUMBER)0.6931471805599453, sum = 1;
    for (int n = TERMS; n > 0; n--) sum = 1 + sum * f * ((NUMBER)1 / n);
    scale.bits = ((BITS)whole + (sizeof(NUMBER) == 4 ? 127 : 1023)) << (sizeof(NUMBER) == 4 ? 23 : 52);
    return x < -78 ? 0 : sum * scale.number;
}

static inline void softmax(NUMBER *restrict logits) {
    NUMBER largest = logits[0], sum = 0;
    for (int j = 1; j < J; j++) largest = logits[j] > largest ? logits[j] : largest;
    for (int j = 0; j < J; j++) sum += logits[j] = power(logits[j] - largest);
    sum = 1 / sum;
    for (int j = 0; j < J; j++) logits[j] *= sum;
}

static inline long places(const Grid *g) { return g->images * g->out_height * g->out_width; }

static inline long least(long a, long b) { return a < b ? a : b; }

#define FOR_EACH_BLOCK(first, last) \
    for (long first = 0, last; first < places(g) && (last = least(first + PLACES, places(g))); first = last)

/* sums[n][d][j] / (totals[n][j] + FLOOR) */
static inline void divide(NUMBER *restrict sums, const NUMBER *restrict totals, long first, long last) {
    for (long n = first; n < last; n++)
        for (int d = 0; d < D; d++)
            for (int j = 0; j < J; j++) sums[n * V + d * J + j] /= totals[n * J + j] + FLOOR;
}

/* The children i under each place n of a block; `at` is the child's number, `matrix` its matrix's. */
#define FOR_EACH_CHILD(first, last, n, at, matrix) \
    for (long k = 0; k < g->kernel * g->kernel; k++) \
        for (long i = 0, matrix = k * g->types; i < g->types; i++, matrix++) \
            for (long n = first, at; n < last && (at = child(g, n, k) + i, 1); n++)

/* Adds to totals. */
void inverted_forward(const Grid *g, const NUMBER *matrices, const NUMBER *children, const NUMBER *queries,
                      NUMBER *totals) {
    FOR_EACH_BLOCK(first, last) {
        FOR_EACH_CHILD(first, last, n, at, matrix) {
            NUMBER votes[V], r[J], *restrict total = totals + n * V;
            vote(matrices + matrix * M, children + at * C, votes);
            products(votes, queries + n * V, r);
            softmax(r);
            for (int d = 0; d < D; d++)
                for (int j = 0; j < J; j++) total[d * J + j] += r[j] * votes[d * J + j];
        }
    }
}

/* Adds to grad_children, grad_matrices and grad_queries. */
void inverted_backward(const Grid *g, const NUMBER *matrices, NUMBER *grad_matrices, const NUMBER *children,
                       const NUMBER *queries, const NUMBER *grad_totals, NUMBER *grad_children, NUMBER *grad_queries) {
    FOR_EACH_BLOCK(first, last) {
        FOR_EACH_CHILD(first, last, n, at, matrix) {
            const NUMBER *restrict query = queries + n * V, *restrict grad_total = grad_totals + n * V;
            NUMBER votes[V], r[J], a[J], mean = 0, *restrict grad_query = grad_queries + n * V;
            vote(matrices + matrix * M, children + at * C, votes);
            products(votes, query, r);
            softmax(r);
            products(votes, grad_total, a);
            for (int j = 0; j < J; j++) mean += r[j] * a[j];
            for (int j = 0; j < J; j++) a[j] = r[j] * (a[j] - mean);
            for (int d = 0; d < D; d++)
                for (int j = 0; j < J; j++) {
                    grad_query[d * J + j] += a[j] * votes[d * J + j];
                    votes[d * J + j] = r[j] * grad_total[d * J + j] + a[j] * query[d * J + j];
                }
            unvote(matrices + matrix * M, children + at * C, votes, grad_matrices + matrix * M, grad_children + at * C);
        }
    }
}

/* The numbers of a place; null where there are none. */
static inline const NUMBER *at_place(const NUMBER *numbers, long n, long size) { return numbers ? numbers + n * size : 0; }

/* The E-step of one child: R_j = softmax(offset_j - sum over d of precision_jd (v_jd - mean_jd)^2 / 2); without
   precisions means are queries, R_j = softmax(sum over d of v_jd mean_jd), and without means R_j = 1/J. */
static inline void assign(const NUMBER *restrict votes, const NUMBER *restrict mean, const NUMBER *restrict precision,
                          const NUMBER *restrict offset, NUMBER *restrict r) {
    if (!mean) {
        for (int j = 0; j < J; j++) r[j] = (NUMBER)1 / J;
        return;
    }
    if (precision) {
        NUMBER sum[J] = {0};
        for (int d = 0; d < D; d++)
            for (int j = 0; j < J; j++) {
                NUMBER e = votes[d * J + j] - mean[d * J + j];
                sum[j] += e * e * precision[d * J + j];
            }
        for (int j = 0; j < J; j++) r[j] = offset[j] - sum[j] / 2;
    } else
        products(votes, mean, r);
    softmax(r);
}

/* An E-step from the Gaussians before, then the M-step: adds totals [n][J], means and variances (without a floor) to
   zeros. `kept` has room for the weights w of PLACES places. */
void em_forward(const Grid *g, const NUMBER *matrices, NUMBER *kept, const NUMBER *children, const NUMBER *activations,
                const NUMBER *old_means, const NUMBER *precisions, const NUMBER *offsets, NUMBER *totals, NUMBER *means,
                NUMBER *variances) {
    long count = g->kernel * g->kernel * g->types;
    FOR_EACH_BLOCK(first, last) {
        FOR_EACH_CHILD(first, last, n, at, matrix) {
            NUMBER votes[V], *restrict total = totals + n * J, *restrict mean = means + n * V;
            NUMBER *restrict w = kept + ((n - first) * count + matrix) * J;
            vote(matrices + matrix * M, children + at * C, votes);
            assign(votes, at_place(old_means, n, V), at_place(precisions, n, V), at_place(offsets, n, J), w);
            for (int j = 0; j < J; j++) total[j] += w[j] *= activations[at];
            for (int d = 0; d < D; d++)
                for (int j = 0; j < J; j++) mean[d * J + j] += w[j] * votes[d * J + j];
        }
        divide(means, totals, first, last);
        FOR_EACH_CHILD(first, last, n, at, matrix) {
            const NUMBER *restrict mean = means + n * V, *restrict w = kept + ((n - first) * count + matrix) * J;
            NUMBER votes[V], *restrict variance = variances + n * V;
            vote(matrices + matrix * M, children + at * C, votes);
            for (int d = 0; d < D; d++)
                for (int j = 0; j < J; j++) {
                    NUMBER c = votes[d * J + j] - mean[d * J + j];
                    variance[d * J + j] += w[j] * c * c;
                }
        }
        divide(variances, totals, first, last);
    }
}

/* Adds to all gradients. With c = v - mean and w = R a, the gradient by w_ij is
   constant_j + sum over d of c (linear_jd + c quadratic_jd), that by v_ijd through the M-step
   w_ij (linear_jd + 2 c quadratic_jd). */
void em_backward(const Grid *g, const NUMBER *matrices, NUMBER *grad_matrices, const NUMBER *children,
                 const NUMBER *activations, const NUMBER *old_means, const NUMBER *precisions, const NUMBER *offsets,
                 const NUMBER *means, const NUMBER *constants, const NUMBER *linears, const NUMBER *quadratics,
                 NUMBER *grad_children, NUMBER *grad_activations, NUMBER *grad_old_means, NUMBER *grad_precisions,
                 NUMBER *grad_offsets) {
    FOR_EACH_BLOCK(first, last) {
        FOR_EACH_CHILD(first, last, n, at, matrix) {
            const NUMBER *restrict mean = means + n * V, *restrict old = at_place(old_means, n, V);
            const NUMBER *restrict precision = at_place(precisions, n, V);
            const NUMBER *restrict linear = linears + n * V, *restrict quadratic = quadratics + n * V;
            NUMBER *restrict grad_old = (NUMBER *)at_place(grad_old_means, n, V);
            NUMBER *restrict grad_precision = (NUMBER *)at_place(grad_precisions, n, V);
            NUMBER votes[V], grad_votes[V], r[J], w[J], l[J], grad_w[J] = {0}, grad_a = 0;
            vote(matrices + matrix * M, children + at * C, votes);
            assign(votes, old, precision, at_place(offsets, n, J), r);
            for (int d = 0; d < D; d++)
                for (int j = 0; j < J; j++) {
                    NUMBER c = votes[d * J + j] - mean[d * J + j];
                    grad_w[j] += c * (linear[d * J + j] + c * quadratic[d * J + j]);
                }
            for (int j = 0; j < J; j++) grad_w[j] += constants[n * J + j];
            for (int j = 0; j < J; j++) grad_a += r[j] * grad_w[j];
            for (int j = 0; j < J; j++) w[j] = r[j] * activations[at];
            grad_activations[at] += grad_a;
            for (int d = 0; d < D; d++)
                for (int j = 0; j < J; j++) {
                    NUMBER c = votes[d * J + j] - mean[d * J + j];
                    grad_votes[d * J + j] = w[j] * (linear[d * J + j] + 2 * c * quadratic[d * J + j]);
                }
            for (int j = 0; j < J; j++) l[j] = w[j] * (grad_w[j] - grad_a); /* the gradient by the logit */
            if (precision) {
                for (int j = 0; j < J; j++) grad_offsets[n * J + j] += l[j];
                for (int d = 0; d < D; d++)
                    for (int j = 0; j < J; j++) {
                        NUMBER e = votes[d * J + j] - old[d * J + j], pulled = l[j] * e * precision[d * J + j];
                        grad_old[d * J + j] += pulled;
                        grad_precision[d * J + j] -= l[j] * e * e / 2;
                        grad_votes[d * J + j] -= pulled;
                    }
            } else if (old) {
                for (int d = 0; d < D; d++)
                    for (int j = 0; j < J; j++) {
                        grad_old[d * J + j] += l[j] * votes[d * J + j];
                        grad_votes[d * J + j] += l[j] * old[d * J + j];
                    }
            }
            unvote(matrices + matrix * M, children + at * C, grad_votes, grad_matrices + matrix * M, grad_children + at * C);
        }
    }
}

/* Dynamic routing: CapsNet's parents are fewer than a vector's numbers, so that a vector is over LANES places here, of
   which some may be beyond the last. Parents' tensors are [place][J][Z * X], matrices [K * I][Y][J * Z]. */
#if defined __AVX512F__
#define BYTES 64
#elif defined __AVX__
#define BYTES 32
#else
#define BYTES 16
#endif

enum { LANES = BYTES / sizeof(NUMBER), WIDTH = (Z + LANES - 1) / LANES /* of a matrix's row, in vectors */ };
typedef NUMBER VECTOR __attribute__((vector_size(BYTES), may_alias));

/* Where the parents' numbers at the places from n on begin. */
static inline void parents(long n, long *starts) {
    for (int lane = 0; lane < LANES; lane++) starts[lane] = (n + lane) * V;
}

/* vectors[v][lane] = numbers[starts[lane] + v]; 0 beyond `count` lanes, and without numbers */
static inline void load(const NUMBER *restrict numbers, const long *starts, int count, int size,
                        VECTOR *restrict vectors) {
    NUMBER *restrict loaded = (NUMBER *)vectors;
    for (int lane = 0; lane < LANES; lane++)
        for (int v = 0; v < size; v++)
            loaded[v * LANES + lane] = numbers && lane < count ? numbers[starts[lane] + v] : 0;
}

/* The inverse of `load`, adding. */
static inline void add(const VECTOR *restrict vectors, const long *starts, int count, int size,
                       NUMBER *restrict numbers) {
    for (int lane = 0; lane < count; lane++)
        for (int v = 0; v < size; v++) numbers[starts[lane] + v] += vectors[v][lane];
}

/* The votes, and r_j = softmax of votes_j . query_j; with grad_total also grad_r_j = votes_j . grad_total_j */
static inline void route(const NUMBER *restrict matrix, const VECTOR *restrict pose, const VECTOR *restrict query,
                         const VECTOR *restrict grad_total, VECTOR *restrict votes, VECTOR *restrict r,
                         VECTOR *restrict grad_r) {
    for (int j = 0; j < J; j++) {
        VECTOR agreement = {0}, by = {0};
        for (int v = j * D; v < (j + 1) * D; v++) {
            VECTOR vote = {0};
            for (int y = 0; y < Y; y++) vote += matrix[y * J * Z + v / X] * pose[y * X + v % X];
            votes[v] = vote;
            agreement += vote * query[v];
            if (grad_total) by += vote * grad_total[v];
        }
        r[j] = agreement;
        if (grad_total) grad_r[j] = by;
    }
    VECTOR largest = r[0], sum = {0};
    for (int j = 1; j < J; j++)
        for (int n = 0; n < LANES; n++) largest[n] = r[j][n] > largest[n] ? r[j][n] : largest[n];
    for (int j = 0; j < J; j++) r[j] -= largest;
    for (int n = 0; n < J * LANES; n++) ((NUMBER *)r)[n] = power(((NUMBER *)r)[n]);
    for (int j = 0; j < J; j++) sum += r[j];
    for (int j = 0; j < J; j++) r[j] /= sum;
}

#define FOR_EACH_LANES(first, count) \
    for (long first = 0, count; (count = least(LANES, places(g) - first)) > 0; first += LANES)

/* Where the poses of the children i under position k of the kernel begin, from those of the children before. */
static inline void next(const Grid *g, long n, long k, long i, long *starts) {
    for (int lane = 0; lane < LANES; lane++) starts[lane] = i ? starts[lane] + C : child(g, n + lane, k) * C;
}

/* The children i under all places of a vector; their poses begin at `starts`. */
#define FOR_EACH_POSES(first, starts, matrix) \
    for (long k = 0, matrix = 0; k < g->kernel * g->kernel; k++) \
        for (long i = 0; i < g->types && (next(g, first, k, i, starts), 1); i++, matrix++)

/* Adds to totals; without queries they are 0. `room` is that of dynamic_backward. */
void dynamic_forward(const Grid *g, const NUMBER *matrices, NUMBER *room, const NUMBER *children, const NUMBER *queries,
                     NUMBER *totals) {
    VECTOR *votes = (VECTOR *)room, *query = votes + V, *total = query + V, *r = total + V, *pose = r + J;
    long starts[LANES];
    FOR_EACH_LANES(first, count) {
        parents(first, starts);
        load(queries, starts, count, V, query);
        memset(total, 0, V * sizeof *total);
        FOR_EACH_POSES(first, starts, matrix) {
            load(children, starts, count, C, pose);
            route(matrices + matrix * M, pose, query, 0, votes, r, 0);
            for (int v = 0; v < V; v++) total[v] += r[v / D] * votes[v];
        }
        parents(first, starts);
        add(total, starts, count, V, totals);
    }
}

/* Adds to grad_children, grad_matrices and grad_queries; without grad_queries the coefficients r are constant, without queries
   1/J. `room` has room for 4 V + 2 J + 2 C vectors. */
void dynamic_backward(const Grid *g, const NUMBER *matrices, NUMBER *grad_matrices, NUMBER *room, const NUMBER *children,
                      const NUMBER *queries, const NUMBER *grad_totals, NUMBER *grad_children, NUMBER *grad_queries) {
    VECTOR *votes = (VECTOR *)room, *query = votes + V, *grad_total = query + V, *grad_query = grad_total + V;
    VECTOR *r = grad_query + V, *a = r + J, *pose = a + J;
    NUMBER *poses = (NUMBER *)(pose + C); /* [lane][Y][X], near to each other, unlike those of `children` */
    long starts[LANES];
    FOR_EACH_LANES(first, count) {
        parents(first, starts);
        load(queries, starts, count, V, query);
        for (int j = 0; j < J; j++) r[j] = (VECTOR){0} + (NUMBER)1 / J;
        load(grad_totals, starts, count, V, grad_total);
        memset(grad_query, 0, V * sizeof *grad_query);
        FOR_EACH_POSES(first, starts, matrix) {
            const NUMBER *restrict w = matrices + matrix * M;
            VECTOR mean = {0}, grad_pose[C] = {{0}};
            load(children, starts, count, C, pose);
            for (int n = 0; n < count; n++) memcpy(poses + n * C, children + starts[n], C * sizeof *poses);
            if (queries) route(w, pose, query, grad_total, votes, r, a);
            if (grad_queries) {
                for (int j = 0; j < J; j++) mean += r[j] * a[j];
                for (int j = 0; j < J; j++) a[j] = r[j] * (a[j] - mean);
                for (int v = 0; v < V; v++) grad_query[v] += a[v / D] * votes[v];
            } else
                memset(a, 0, J * sizeof *a);
            for (int j = 0; j < J; j++)
                for (int z = j * Z; z < (j + 1) * Z; z++)
                    for (int x = 0, v = z * X; x < X; x++, v++) {
                        VECTOR grad_vote = r[j] * grad_total[v] + a[j] * query[v];
                        for (int y = 0; y < Y; y++) grad_pose[y * X + x] += w[y * J * Z + z] * grad_vote;
                    }
            add(grad_pose, starts, count, C, grad_children);
            for (int j = 0; j < J; j++) { /* a vector is over the rows z here: no sum is over its numbers */
                VECTOR sum[Y][WIDTH] = {{{0}}}, grad_vote[X][WIDTH] = {{{0}}};
                for (int lane = 0; lane < count; lane++) {
                    const NUMBER *restrict by = grad_totals + (first + lane) * V + j * D;
                    const NUMBER *restrict q = (queries ? queries : grad_totals) + (first + lane) * V + j * D;
                    for (int x = 0; x < X; x++)
                        for (int z = 0; z < Z; z++)
                            ((NUMBER *)grad_vote[x])[z] = r[j][lane] * by[z * X + x] + a[j][lane] * q[z * X + x];
                    for (int y = 0; y < Y; y++)
                        for (int x = 0; x < X; x++)
                            for (int z = 0; z < WIDTH; z++) sum[y][z] += grad_vote[x][z] * poses[lane * C + y * X + x];
                }
                for (int y = 0; y < Y; y++)
                    for (int z = 0; z < Z; z++)
                        grad_matrices[matrix * M + (y * J + j) * Z + z] += ((NUMBER *)sum[y])[z];
            }
        }
        parents(first, starts);
        if (grad_queries) add(grad_query, starts, count, V, grad_queries);
    }
}
