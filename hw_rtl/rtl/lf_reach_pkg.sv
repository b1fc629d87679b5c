// How far a pass of a command reaches along a row: so many neighbouring columns of the result in one cycle,
// each by so many columns of the kernel.
//
// A depthwise convolution has elements of its own for every lane, so the rows of the array serve neighbouring
// columns: 4 by 4 elements, 3 by 5 or 2 by 6.
package lf_reach_pkg;
  import lf_isa_pkg::*;

  // Words of a row that meet in one cycle: those that come from the buffer, and some of those before.
  parameter int unsigned Reach = 2 * Window;

  typedef struct packed {
    logic [2:0] columns;
    logic [2:0] taps;
  } reach_t;

  // A step of the walk over a command's columns: a window of the operand, for neighbouring result columns.
  typedef struct packed {
    logic              fetch;  // it brings words for the step after it, and is no column itself
    logic [Reach-1:0]  present;  // words of its window that are no padding
    logic [2:0]        from;  // first word of its window from the buffer; those before were in the last one
    logic [2:0]        taps;  // kernel columns of the group
    logic [6:0]        lanes;  // CONV: input channels end here
    logic [5:0]        lane;  // CONV: they begin here
    logic              first;  // of the block's passes
    logic              final_pass;  // of the block
    logic              row_end;
    logic              pass_start;
    logic              block_end;
    logic              command_end;
    logic [8:0]        column;  // the first,
    logic [2:0]        count;  // of so many
    logic [Window-1:0] mask;  // words to read
    logic [19:0]       word;  // the first
    logic              over;  // they lie behind the end of the buffer
  } step_t;

  function automatic reach_t reach(logic [2:0] operation, logic narrow, logic first,
                                   logic [4:0] dilation, logic [11:0] kernel_columns,
                                   logic [3:0] stride_columns, logic [11:0] o_width);
    logic depthwise;
    depthwise = operation == 3'(DoDepthwise);
    if (dilation != 5'd1) return '{columns: 3'd1, taps: 3'd1};
    if (depthwise && first && o_width != 12'd1) begin
      if (stride_columns == 4'd1) begin  // 3 by 5 where that is faster
        if (kernel_columns == 12'd5 || kernel_columns == 12'd9 || kernel_columns == 12'd10 ||
            kernel_columns == 12'd25) begin
          return '{columns: 3'd3, taps: 3'd5};
        end
        return '{columns: 3'd4, taps: 3'd4};
      end
      if (stride_columns == 4'd2) return '{columns: 3'd2, taps: 3'd6};
    end
    if (depthwise || operation == 3'(DoSum) || operation == 3'(DoMax) ||
        (operation == 3'(DoConv) && narrow)) begin
      return '{columns: 3'd1, taps: 3'(Window)};
    end
    return '{columns: 3'd1, taps: 3'd1};
  endfunction

  // Kernel columns of a group, of which `left` are left with it; and of the group behind it, if there is one.
  function automatic logic [2:0] taps_of(logic [11:0] left, logic [2:0] taps);
    return left < 12'(taps) ? 3'(left) : taps;
  endfunction

  function automatic logic [2:0] taps_behind(logic [11:0] left, logic [2:0] taps);
    return left < 12'({taps, 1'b0}) ? 3'(left) - taps : taps;
  endfunction
endpackage
